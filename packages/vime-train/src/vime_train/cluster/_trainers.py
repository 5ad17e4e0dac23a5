"""All trainer ranks as one: a call goes to every rank, a batch to the ranks of its DP coordinate.

Always true:

- each rank of a replica (its TP, PP and CP ranks) receives the same `RankBatch`;
- a rank that dies or raises ends the call with an error that names the rank, and the trainers are of no more use:
  the run goes on from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vime_train.cluster import _calls
from vime_train.cluster._actors import make_trainer
from vime_train.cluster._calls import Call, Handle

if TYPE_CHECKING:
    from vime_train.config import LayoutSection, RunConfig
    from vime_train.rollout import RankBatch


def dp_coordinate(rank: int, layout: LayoutSection) -> int:
    """The DP coordinate of a rank: Megatron counts TP fastest, then CP, then DP, then PP.

    Example:
        >>> from vime_train.config import LayoutSection
        >>> [dp_coordinate(rank, LayoutSection(dp=2, cp=2, pp=2)) for rank in range(8)]
        [0, 0, 1, 1, 0, 0, 1, 1]
    """
    return rank // (layout.tp * layout.cp) % layout.dp


class TrainerGroup:
    """The trainers of a run, which begin to start at once.

    Args:
        handles: one actor per rank, in the order of the ranks.
        config: the run.
        model_path: Hugging Face directory to start from.
        init_method: where the ranks meet, as torch.distributed takes it.
    """

    def __init__(self, handles: Sequence[Handle], config: RunConfig, *, model_path: str, init_method: str) -> None:
        self._handles = list(handles)
        self._layout = config.layout
        self._section = config.cluster
        arguments = {
            "config": config,
            "model_path": model_path,
            "world_size": len(self._handles),
            "init_method": init_method,
        }
        self._starting = [
            _calls.start(handle, make_trainer, {**arguments, "rank": rank}) for rank, handle in enumerate(self._handles)
        ]

    def ready(self) -> None:
        """Wait until every trainer has started."""
        _calls.wait(
            self._starting,
            timeout_seconds=self._section.start_timeout_seconds,
            setting="cluster.start_timeout_seconds",
        )

    def train(
        self,
        batches: Sequence[RankBatch],
        *,
        doing: str,
        critic_only: bool = False,
        trace_to: str | None = None,
        memory_to: str | None = None,
    ) -> list[dict[str, float]]:
        """Run every optimizer step of one iteration's plan, or the critic's alone; the reduced numbers of each step.

        Each rank writes its profile below `trace_to` and its CUDA memory history below `memory_to`, if given.
        """
        options = {"critic_only": critic_only, "trace_to": trace_to, "memory_to": memory_to}
        calls = self._begin_batches("train", batches, doing=doing, **options)
        return cast("list[dict[str, float]]", self._first(calls))

    def log_prob_difference(self, batches: Sequence[RankBatch], *, doing: str) -> dict[str, float]:
        """Max and mean difference between the batch's log-probs and those of the trainers' weights."""
        return cast("dict[str, float]", self._first(self._begin_batches("log_prob_difference", batches, doing=doing)))

    def begin_supervised_step(self, batches: Sequence[RankBatch], *, lr: float, doing: str) -> list[Call]:
        """Begin one supervised step; steps run in the order in which they were begun."""
        return self._begin_batches("supervised_step", batches, doing=doing, lr=lr)

    def supervised_result(self, step: Sequence[Call]) -> dict[str, float]:
        """The reduced numbers of a supervised step."""
        return cast("dict[str, float]", self._first(step))

    def renew_reference(self) -> None:
        """Let the reference model be the policy as it is now."""
        self._each("renew_reference", doing="renew the reference")

    def export(self, directory: Path) -> None:
        """Write the weights as a Hugging Face directory."""
        self._each("export", str(directory), doing=f"export the weights to {directory}")

    def save(self, directory: Path) -> None:
        """Write weights, optimizer state and random numbers."""
        self._each("save", str(directory), doing=f"save a checkpoint to {directory}")

    def load(self, directory: Path) -> None:
        """Take up what `save` wrote."""
        self._each("load", str(directory), doing=f"load the checkpoint {directory}")

    def busy_seconds(self) -> list[float]:
        """How long each rank has worked so far."""
        return _calls.busy_seconds(self._handles)

    def process_ids(self) -> list[int]:
        """The process of every rank."""
        return [handle.process_id() for handle in self._handles]

    def _each(self, method: str, *arguments: object, doing: str) -> None:
        self._first([_calls.call(handle, method, *arguments, doing=doing) for handle in self._handles])

    def _begin_batches(self, method: str, batches: Sequence[RankBatch], *, doing: str, **named: object) -> list[Call]:
        stored = [_calls.share(batch) for batch in batches]
        return [
            _calls.call(handle, method, stored[dp_coordinate(rank, self._layout)], doing=doing, **named)
            for rank, handle in enumerate(self._handles)
        ]

    def _first(self, calls: Sequence[Call]) -> object:
        results = _calls.wait(
            calls,
            timeout_seconds=self._section.train_timeout_seconds,
            setting="cluster.train_timeout_seconds",
        )
        return results[0]
