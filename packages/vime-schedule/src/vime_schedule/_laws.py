"""The laws of a plan, checked.

Laws
- S1 Every sample is on exactly one rank, once, or in `dropped`.
- S2 In a step all ranks run the same, legal number of micro-batches.
- S3 No micro-batch exceeds its budget, but for a single longer sample that the plan lists as oversize.
- S4 The samples of one rollout train in one step.
- Micro-batch k has the same signature on every rank, where signatures were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from vime_schedule._errors import ScheduleError

if TYPE_CHECKING:
    from vime_schedule._schedule import Schedule


def check_laws(schedule: Schedule, total_lengths: Sequence[int]) -> None:
    """Raise a ScheduleError that names the first broken law and where."""
    check_lengths(schedule, total_lengths)
    check_coverage(schedule)
    check_counts(schedule)
    check_budget(schedule)
    check_rollouts(schedule)
    if schedule.signatures is not None:
        check_signatures(schedule, schedule.signatures)


def check_lengths(schedule: Schedule, total_lengths: Sequence[int]) -> None:
    """The plan was made from these lengths."""
    planned = schedule.total_lengths
    if len(total_lengths) != len(planned):
        raise ScheduleError(
            f"the plan is for {len(planned)} samples but {len(total_lengths)} lengths were given: "
            "validate a plan against the lengths it was made from."
        )
    if tuple(total_lengths) == planned:
        return
    position = next(i for i, (mine, given) in enumerate(zip(planned, total_lengths, strict=True)) if mine != given)
    raise ScheduleError(
        f"the plan was made for {planned[position]} tokens at position {position} but {total_lengths[position]!r} "
        "was given: validate a plan against the lengths it was made from."
    )


def check_coverage(schedule: Schedule) -> None:
    """S1."""
    ranks = (rank for step in schedule.steps for rank in step.micro_batches)
    placed = chain(chain.from_iterable(chain.from_iterable(ranks)), schedule.dropped)
    seen = bytearray(len(schedule.total_lengths))
    for position in placed:
        if not 0 <= position < len(seen):
            raise ScheduleError(f"law S1: position {position} is not one of the {len(seen)} samples: rebuild the plan.")
        if seen[position]:
            raise ScheduleError(f"law S1: the sample at position {position} is planned twice: rebuild the plan.")
        seen[position] = 1
    if 0 in seen:
        raise ScheduleError(
            f"law S1: the sample at position {seen.index(0)} is on no rank and not in `dropped`: rebuild the plan."
        )


def check_counts(schedule: Schedule) -> None:
    """S2."""
    for number, step in enumerate(schedule.steps):
        counts = [len(rank) for rank in step.micro_batches]
        if len(counts) != schedule.layout.dp:
            raise ScheduleError(
                f"law S2: step {number} has {len(counts)} ranks but dp={schedule.layout.dp}: rebuild the plan."
            )
        if len(set(counts)) > 1:
            raise ScheduleError(
                f"law S2: the ranks of step {number} run {counts} micro-batches, which must be equal: rebuild the plan."
            )
        if not schedule.layout.is_legal(counts[0]):
            raise ScheduleError(
                f"law S2: step {number} has {counts[0]} micro-batches per rank, which the pipeline refuses "
                f"({schedule.layout}): the next legal number is {schedule.layout.next_legal(counts[0])}."
            )


def check_budget(schedule: Schedule) -> None:
    """S3."""
    cp = schedule.layout.cp
    capacity = schedule.batching.capacity(cp)
    shares = schedule.batching.shares(schedule.total_lengths, cp)
    oversize = {position for position in schedule.oversize if shares[position] > capacity}
    if len(oversize) != len(schedule.oversize):
        raise ScheduleError("law S3: `oversize` lists a sample within the budget: rebuild the plan.")
    for number, step in enumerate(schedule.steps):
        for rank, micro_batches in enumerate(step.micro_batches):
            for index, micro_batch in enumerate(micro_batches):
                held = sum([shares[position] for position in micro_batch])
                if held > capacity and not (len(micro_batch) == 1 and micro_batch[0] in oversize):
                    raise ScheduleError(
                        f"law S3: micro-batch {index} of rank {rank} in step {number} holds {held} of at most "
                        f"{capacity} ({schedule.batching}): rebuild the plan."
                    )


def check_rollouts(schedule: Schedule) -> None:
    """S4, and the number of rollouts that each step states."""
    step_of: dict[int, int] = {}
    sizes = [0] * len(schedule.steps)
    for number, step in enumerate(schedule.steps):
        for position in chain.from_iterable(chain.from_iterable(step.micro_batches)):
            rollout = schedule.rollouts[position]
            first = step_of.setdefault(rollout, number)
            if first != number:
                raise ScheduleError(
                    f"law S4: rollout {rollout} trains in steps {first} and {number} (sample at position {position}): "
                    "rebuild the plan."
                )
    for number in step_of.values():
        sizes[number] += 1
    for number, step in enumerate(schedule.steps):
        if step.global_batch_size != sizes[number]:
            raise ScheduleError(
                f"law S4: step {number} states {step.global_batch_size} rollouts but trains {sizes[number]}: "
                "rebuild the plan."
            )


def check_signatures(schedule: Schedule, signatures: Sequence[int]) -> None:
    """Micro-batch k has one signature over all ranks."""
    for number, step in enumerate(schedule.steps):
        for index, row in enumerate(zip(*step.micro_batches, strict=True)):
            found = {signatures[position] for position in chain.from_iterable(row)}
            if len(found) > 1:
                raise ScheduleError(
                    f"micro-batch {index} of step {number} mixes signatures over the ranks: rebuild the plan."
                )
