"""Models that are scored and never trained: the reference and the teacher.

Always true: their weights are those they were given, in every layout; between passes they are in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.megatron._architecture import check_layout, read_architecture
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._hf_weights import export_weights
from vime_train.megatron._objectives import ScoringObjective
from vime_train.megatron._rank_model import RankModel
from vime_train.megatron._scoring import score_batch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vime_train.config import RunConfig
    from vime_train.megatron._groups import Groups
    from vime_train.rollout import RankBatch


class FrozenModel:
    """Log-probs under fixed weights."""

    def __init__(self, model: RankModel) -> None:
        self._model = model
        self._rest()

    @classmethod
    def read(cls, directory: str, groups: Groups, config: RunConfig, *, vocab_size: int, key: str) -> FrozenModel:
        """The model of a Hugging Face directory, of any supported architecture with the policy's vocabulary.

        Raises:
            ValueError: another vocabulary, a layout that does not divide the model, or unusable weights.
        """
        architecture = read_architecture(directory)
        check_layout(architecture, config.layout)
        if architecture.vocab_size != vocab_size:
            raise ValueError(
                f"{key} = {directory!r} has {architecture.vocab_size} vocabulary entries but the policy has "
                f"{vocab_size}: tokens would mean something else, give a model with the same tokenizer"
            )
        model = RankModel.build(architecture, groups, config, trained=False)
        model.load(directory)
        return cls(model)

    @classmethod
    def copy_of(cls, policy: RankModel, config: RunConfig) -> FrozenModel:
        """The policy as it is now."""
        model = RankModel.build(policy.architecture, policy.groups, config, trained=False)
        model.take(policy)
        return cls(model)

    def log_probs(self, batch: RankBatch, *, temperature: float) -> tuple[npt.NDArray[np.float32], ...] | None:
        """Log-probs of every sample's response tokens, 0 where masked; None off the last pipeline stage."""
        groups = self._model.groups
        self._move(str(groups.device))
        found = score_batch(batch, self._model, ScoringObjective(groups=groups, temperature=temperature))
        self._rest()
        return None if found is None else tuple(found)

    def export(self, directory: str, *, like: str) -> None:
        """Write the weights as a Hugging Face directory; collective."""
        model = self._model
        self._move(str(model.groups.device))
        export_weights(directory, model.architecture, model.chunks, model.groups, like=like)
        self._rest()

    def _rest(self) -> None:
        self._move("cpu")

    def _move(self, device: str) -> None:
        with device_scope():
            for chunk in self._model.chunks.bare:
                chunk.to(device)
