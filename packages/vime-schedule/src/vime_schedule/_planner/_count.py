"""The fewest micro-batches per rank, and which constraint asks for each of them.

Laws
- The count is legal for the pipeline, the same on every rank, and no smaller one can hold the samples in the budget.
- A step with too few samples is refused before it is packed, with the number of samples that would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vime_schedule._errors import ScheduleError
from vime_schedule._layout import ParallelLayout
from vime_schedule._planner._items import Items
from vime_schedule._step import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Micro-batches per rank: `rows` for every signature, `total` of them after fillers or legality add more."""

    rows: list[int]
    total: int
    reasons: tuple[Reason, ...]

    def because(self, rule: str, why: str, *, rows: list[int], total: int) -> Count:
        """A larger count, and the reason for it."""
        reason = Reason(rule=rule, micro_batches=total, why=why)
        return Count(rows=rows, total=total, reasons=(*self.reasons, reason))


def fewest_micro_batches(classes: Sequence[Items], layout: ParallelLayout, capacity: int, unit: str) -> Count:
    """The least count that serves budget, equal ranks, signatures and pipeline; `unit` names what is budgeted."""
    bins = [fewest_bins(items, capacity) for items in classes]
    dp, together = layout.dp, sum(bins)
    least = -(-together // dp)
    count = Count(rows=[], total=0, reasons=())
    held = sum(sum(items.loads) for items in classes)
    large = sum(items.count_above(capacity // 2) for items in classes)
    if large == together and large > -(-held // capacity):
        why = f"{large} samples above half of the budget cannot share, which takes {together} micro-batches on dp={dp}"
        count = count.because("large", why, rows=[], total=least)
    else:
        why = f"{held} {unit} fill at least {together} micro-batches of {capacity}, on dp={dp}"
        count = count.because(unit, why, rows=[], total=least)
    rows = [-(-number // dp) for number in bins]
    if sum(rows) > least:
        why = f"{len(classes)} signatures take {rows} micro-batches per rank, which no rank may mix"
        count = count.because("signature", why, rows=rows, total=sum(rows))
    count = Count(rows=rows, total=sum(rows), reasons=count.reasons)
    return make_legal(count, layout)


def fewest_bins(items: Items, capacity: int) -> int:
    """At least the bins that the samples above half of the capacity take, and that all of them fill."""
    over = items.count_above(capacity)
    held = sum(items.loads[over:])
    return max(items.count_above(capacity // 2), over - (-held // capacity))


def make_legal(count: Count, layout: ParallelLayout) -> Count:
    """The next count that the pipeline takes; the rows it adds are still to be shared out."""
    legal = layout.next_legal(count.total)
    if legal == count.total:
        return count
    why = f"the interleaved pipeline takes M only if pp <= group <= M and M % group is 0 or at least pp ({layout})"
    return count.because("vpp", why, rows=count.rows, total=legal)


def check_enough(step: int, num_samples: int, count: Count, layout: ParallelLayout) -> None:
    """Refuse a step with fewer samples than micro-batches."""
    needed = layout.dp * count.total
    if num_samples >= needed:
        return
    raise ScheduleError(
        f"step {step} has {num_samples} samples but needs at least {needed}: {count.total} micro-batches on each of "
        f"dp={layout.dp} ranks (pp={layout.pp}, vpp={layout.vpp}, group={layout.group}; "
        f"{count.reasons[-1].rule}: {count.reasons[-1].why}). "
        f"Add {needed - num_samples} samples, lower `dp`, or choose shortage='fill'."
    )
