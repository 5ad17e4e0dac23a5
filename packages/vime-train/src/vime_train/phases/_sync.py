"""Weights from the trainers to the engines, and the proof that they arrived.

Always true:

- after every sync the log-probs of sampled tokens are computed again by the trainers, and the run stops if one of them
  differs by more than `engine.max_log_prob_difference`: stale or half-loaded weights are an error, not an odd curve;
- where `engine.max_checked_samples` bounds this, groups come in turns, so that every engine's answers are among them;
- a token that was sampled under another weight version than the engines held when it was asked for is an error too;
  with `rollout.partial_rollout` older ones are left out of the comparison, since the trainers' weights have moved on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vime_train._errors import RunError
from vime_train.rollout import forward_batches, only_version

if TYPE_CHECKING:
    from vime_train.cluster import Cluster, EnginePool, TrainerGroup
    from vime_train.config import RunConfig
    from vime_train.rollout import Sample


class WeightSyncError(RunError, RuntimeError):
    """The engines do not hold the trainers' weights."""


class WeightSync:
    """Sends weights, counts their versions, and compares the two sides.

    Attributes:
        version: the version that the engines hold.
    """

    def __init__(self, cluster: Cluster, trainers: TrainerGroup, engines: EnginePool, config: RunConfig) -> None:
        self._cluster = cluster
        self._trainers = trainers
        self._engines = engines
        self._config = config
        self.version = 0

    def send(self, *, version: int) -> None:
        """Export the trainers' weights and load them into every engine as `version`."""
        directory = self._cluster.weights_directory(version)
        self._trainers.export(directory)
        self._engines.load_weights(str(directory), version=version)
        self.version = version

    def check(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Compare both sides on what was sampled since the last sync; the max and mean difference of log-probs.

        Nothing is compared where nothing was sampled since then: every group came from the buffer.

        Raises:
            WeightSyncError: naming the sync, the difference, and what to look at.
        """
        samples = _in_turns(self._of_this_version(samples))[: self._config.engine.max_checked_samples]
        if not samples:
            return {}
        batches = forward_batches(samples, self._config)
        difference = self._trainers.log_prob_difference(batches, doing=f"check the log-probs after sync {self.version}")
        largest, limit = difference["max"], self._config.engine.max_log_prob_difference
        if not largest <= limit:
            raise WeightSyncError(
                f"sync {self.version}: vLLM's and Megatron's log-probs of {len(samples)} samples differ by up to "
                f"{largest:.3g} (mean {difference['mean']:.3g}), more than engine.max_log_prob_difference = {limit:g}: "
                "the engines serve stale or half-loaded weights, or the two sides compute the model differently. "
                "A value above 0.1 is the first; just above the limit is the second (dtype, attention kernel)."
            )
        return {"check/max_log_prob_difference": largest, "check/mean_log_prob_difference": difference["mean"]}

    def require_version(self, samples: Sequence[Sample], version: int) -> None:
        """Refuse samples of other weights than the engines held, or of newer ones with `rollout.partial_rollout`.

        Raises:
            WeightSyncError: naming the versions.
        """
        versions = sorted({found for sample in samples for found in sample.token_versions})
        partial = self._config.rollout.partial_rollout
        if any(found > version for found in versions) or (set(versions) - {version} and not partial):
            raise WeightSyncError(
                f"sync {self.version}: samples carry weight versions {versions}, the engines held {version}: "
                "the rollout function must generate with the engine it is given, and not keep answers for later."
            )

    def _of_this_version(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with tokens of the weights that the trainers hold, and all other tokens masked."""
        self.require_version(samples, self.version)
        masked = [only_version(sample, self.version) for sample in samples]
        return [sample for sample in masked if any(sample.loss_mask)]


def _in_turns(samples: Sequence[Sample]) -> list[Sample]:
    """The first sample of every group, then the second of every group, and so on."""
    seen: Counter[int] = Counter()
    turns = []
    for sample in samples:
        turns.append(seen[sample.group_id])
        seen[sample.group_id] += 1
    return [samples[place] for place in sorted(range(len(samples)), key=turns.__getitem__)]
