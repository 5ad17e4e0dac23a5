"""How one training job is cut across ranks, and how many micro-batches its pipeline accepts.

Laws
- Every data-parallel (DP) rank runs the same number M of micro-batches in a step.
- Without virtual pipeline stages (vpp == 1) every M >= 1 is legal.
- With vpp > 1 the interleaved 1F1B schedule takes M only if pp <= g <= M and (M % g == 0 or M % g >= pp),
  where g is `microbatch_group_size_per_vp_stage`.
"""

from __future__ import annotations

from dataclasses import dataclass

from vime_schedule._errors import ScheduleError, check_positive

MOST_CHUNKS = 1 << 14  # no model has as many layers; a typo must not simulate for hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """How one training job is cut across ranks; every field counts ranks or stages.

    Args:
        dp: data-parallel replicas, not counting context parallelism.
        cp: ranks that share one sequence.
        tp: ranks that share one layer.
        pp: pipeline stages, one per rank of a pipeline.
        vpp: model chunks per pipeline rank; above 1 the pipeline is interleaved.
        microbatch_group_size_per_vp_stage: micro-batches a rank runs on one chunk before it turns to the next;
            None means `pp`. It matters only with vpp > 1.

    Raises:
        ScheduleError: if a field is not a whole number of at least 1, vpp > 1 without a pipeline, or the group
            is smaller than `pp`.

    >>> ParallelLayout(dp=2, pp=4, vpp=2).next_legal(5)
    8
    """

    dp: int = 1
    cp: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    microbatch_group_size_per_vp_stage: int | None = None

    def __post_init__(self) -> None:
        for name in ("dp", "cp", "tp", "pp"):
            check_positive(name, getattr(self, name), "counts ranks")
        check_positive("vpp", self.vpp, "counts model chunks per pipeline rank")
        group = self.microbatch_group_size_per_vp_stage
        if group is not None:
            check_positive("microbatch_group_size_per_vp_stage", group, "counts micro-batches")
        if self.pp * self.vpp > MOST_CHUNKS:
            raise ScheduleError(
                f"pp={self.pp} times vpp={self.vpp} is more than {MOST_CHUNKS} model chunks, and each needs a layer: "
                "lower `pp` or `vpp`."
            )
        if self.vpp == 1:
            return
        if self.pp == 1:
            raise ScheduleError(f"vpp={self.vpp} needs a pipeline to interleave but pp=1: set vpp=1 or raise `pp`.")
        if group is not None and group < self.pp:
            raise ScheduleError(
                f"microbatch_group_size_per_vp_stage={group} is below pp={self.pp}, which the interleaved pipeline "
                f"refuses: give at least {self.pp}, or None for {self.pp}."
            )

    @property
    def group(self) -> int:
        """Micro-batches that travel through the model chunks together: g with vpp > 1, else 1."""
        if self.vpp == 1:
            return 1
        return self.microbatch_group_size_per_vp_stage or self.pp

    @property
    def world_size(self) -> int:
        """Ranks of the whole job: dp * cp * tp * pp."""
        return self.dp * self.cp * self.tp * self.pp

    def is_legal(self, num_micro_batches: int) -> bool:
        """Whether the pipeline can run `num_micro_batches` per rank in one step."""
        return num_micro_batches >= 1 and self.next_legal(num_micro_batches) == num_micro_batches

    def next_legal(self, at_least: int) -> int:
        """The smallest legal number of micro-batches per rank that is not below `at_least`."""
        count = max(at_least, self.group)
        beyond = count % self.group
        if beyond == 0 or beyond >= self.pp:
            return count
        return count - beyond + self.pp

    def __str__(self) -> str:
        """The fields that are not 1, as in error messages: `dp=8, pp=4, vpp=2, group=4`."""
        named = [f"{name}={getattr(self, name)}" for name in ("cp", "tp", "pp", "vpp") if getattr(self, name) != 1]
        return ", ".join([f"dp={self.dp}", *named, *([f"group={self.group}"] if self.vpp > 1 else [])])
