"""The plan: which sample runs in which micro-batch, on which rank, in which optimizer step.

Laws
- S1 Every sample is on exactly one rank, once, or in `dropped`.
- S5 A plan is a pure function of its input, so `fingerprint` is the same on every rank, machine and Python version.
- S7 A plan carries the lengths and the micro-batch costs it was made from, so every figure can be recomputed.
- `Schedule.from_json(schedule.to_json()) == schedule`; a text that is not a valid plan is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from vime_schedule._errors import ScheduleError

if TYPE_CHECKING:
    from vime_schedule._batching import Batching
    from vime_schedule._layout import ParallelLayout
    from vime_schedule._report import ScheduleReport
    from vime_schedule._step import StepSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSchedule:
    """What one DP rank needs to train, under the names that slime and vime trainers read.

    Args:
        partition: positions of this rank's samples, in the order in which they are consumed.
        micro_batch_indices: for every micro-batch of all steps in turn, indices into `partition`; `()` is a filler.
        num_microbatches: micro-batches per step, the same on every rank.
        global_batch_sizes: rollouts per step over all ranks.
    """

    partition: tuple[int, ...]
    micro_batch_indices: tuple[tuple[int, ...], ...]
    num_microbatches: tuple[int, ...]
    global_batch_sizes: tuple[int, ...]

    def as_dict(self) -> dict[str, list[int] | list[list[int]]]:
        """The four fields as plain lists, ready to join a trainer's batch dictionary."""
        return {
            "partition": list(self.partition),
            "micro_batch_indices": [list(indices) for indices in self.micro_batch_indices],
            "num_microbatches": list(self.num_microbatches),
            "global_batch_sizes": list(self.global_batch_sizes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A plan for all optimizer steps of one batch of rollouts.

    Args:
        layout: the ranks it was made for.
        batching: the bound on each micro-batch.
        objective: what was minimised.
        total_lengths: tokens per sample, as given.
        rollouts: for every sample the number of its rollout, counted by first appearance.
        signatures: for every sample the number of its signature, or None where none were given.
        steps: the optimizer steps in order.
        dropped: positions of samples that train in no step.
        oversize: positions of samples that exceed the budget alone and still train.

    A plan comes from `build_dp_schedule` or `Schedule.from_json`; both give only plans that obey the laws.
    """

    layout: ParallelLayout
    batching: Batching
    objective: str
    total_lengths: tuple[int, ...]
    rollouts: tuple[int, ...]
    signatures: tuple[int, ...] | None
    steps: tuple[StepSchedule, ...]
    dropped: tuple[int, ...]
    oversize: tuple[int, ...]

    def for_rank(self, rank: int) -> RankSchedule:
        """The part of one DP rank.

        Raises:
            ScheduleError: if `rank` is not in `range(layout.dp)`.
        """
        if not 0 <= rank < self.layout.dp:
            raise ScheduleError(f"rank {rank} is not a data-parallel rank: give one of 0..{self.layout.dp - 1}.")
        micro_batches = [micro_batch for step in self.steps for micro_batch in step.micro_batches[rank]]
        indices, start = [], 0
        for micro_batch in micro_batches:
            indices.append(tuple(range(start, start + len(micro_batch))))
            start += len(micro_batch)
        return RankSchedule(
            partition=tuple(chain.from_iterable(micro_batches)),
            micro_batch_indices=tuple(indices),
            num_microbatches=tuple(step.num_micro_batches for step in self.steps),
            global_batch_sizes=tuple(step.global_batch_size for step in self.steps),
        )

    def report(self, *, backward_ratio: float = 2.0) -> ScheduleReport:
        """Every figure of the plan, per step and in total; `backward_ratio` is backward over forward time."""
        from vime_schedule._report import report_schedule

        return report_schedule(self, backward_ratio=backward_ratio)

    def validate(self, total_lengths: Sequence[int]) -> None:
        """Check laws S1 to S6 of this plan against the lengths a trainer holds.

        Raises:
            ScheduleError: naming the first law that is broken, and where.
        """
        from vime_schedule._laws import check_laws

        check_laws(self, total_lengths)

    def to_json(self) -> str:
        """The plan as canonical JSON: sorted keys, no spaces, the same bytes wherever it was planned."""
        from vime_schedule._json import dump_schedule

        return dump_schedule(self)

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Read a plan that `to_json` wrote.

        Raises:
            ScheduleError: if the text is not JSON, a field is missing or of the wrong type, or the plan breaks a law.
        """
        from vime_schedule._json import load_schedule

        return load_schedule(text)

    @property
    def fingerprint(self) -> str:
        """sha256 of the canonical JSON, in hex: equal on two ranks exactly when their plans are."""
        return sha256(self.to_json().encode()).hexdigest()
