"""The order in which one pipeline stage runs its forwards and backwards: 1F1B and Megatron's interleaved 1F1B.

Laws
- Every stage runs each (chunk, micro-batch) once forward and, when training, once backward, never backward first.
- A backward order is the forward order with the chunks reversed.
- With a legal number of micro-batches the orders of all stages fit together: none waits for one that waits for it.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC 2021),
section 2.2, and the argument checks of Megatron-core 0.16 for `microbatch_group_size_per_vp_stage`.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """One forward or backward of one micro-batch through one model chunk of a stage."""

    backward: bool
    chunk: int
    micro_batch: int


def stage_order(
    stage: int, *, count: int, pp: int, vpp: int = 1, group: int | None = None, forward_only: bool = False
) -> list[Operation]:
    """Return what stage `stage` of `pp` runs for `count` micro-batches, first to last.

    >>> [("B" if op.backward else "F") + str(op.micro_batch) for op in stage_order(0, count=3, pp=2)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    slots = _chunk_slots(count, vpp, pp if group is None else group)
    forwards = [Operation(False, chunk, m) for chunk, m in slots]
    if forward_only:
        return forwards
    backwards = [Operation(True, vpp - 1 - chunk, m) for chunk, m in slots]
    lead = min(_warm_up(stage, pp, vpp, pp if group is None else group), len(slots))
    order = forwards[:lead]
    for k, backward in enumerate(backwards):
        order.extend(forwards[lead + k : lead + k + 1])
        order.append(backward)
    return order


def _warm_up(stage: int, pp: int, vpp: int, group: int) -> int:
    """Count the forwards a stage runs before it alternates."""
    if vpp == 1:
        return pp - 1 - stage
    return 2 * (pp - 1 - stage) + (vpp - 1) * group


def _chunk_slots(count: int, vpp: int, group: int) -> list[tuple[int, int]]:
    """List (chunk, micro-batch) as a stage meets them: a group through chunk 0, the same group through chunk 1, ..."""
    if vpp == 1:
        return [(0, m) for m in range(count)]
    return [(chunk, m) for members in chunk_groups(count, group) for chunk in range(vpp) for m in members]


def chunk_groups(count: int, group: int) -> list[range]:
    """Cut `count` micro-batches into the groups that pass a stage's chunks together; only the last may be smaller."""
    return [range(start, min(start + group, count)) for start in range(0, count, group)]
