"""The critic of PPO: the policy's layers with a value head, trained beside it on the same plan.

Always true: it is cut by the same layout and runs the same micro-batches as the policy; values are those before the
first step of an iteration, as the advantages made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.megatron._checkpoint import WEIGHTS, Counters, load_state, save_state
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._hf_weights import export_weights
from vime_train.megatron._objectives import CriticObjective, ScoringObjective
from vime_train.megatron._optimizer import build_optimizer
from vime_train.megatron._rank_model import RankModel
from vime_train.megatron._report import reduce_logs
from vime_train.megatron._scoring import score_batch
from vime_train.megatron._update import Trained, update

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from vime_train.config import RunConfig
    from vime_train.rollout import RankBatch


class Critic:
    """A value model and its optimizer."""

    def __init__(self, policy: RankModel, config: RunConfig) -> None:
        """Begin as the policy is now, with a head of zeros."""
        self._config = config
        model = RankModel.build(policy.with_value_head(), policy.groups, config, trained=True)
        model.take(policy)
        with device_scope():
            self._trained = Trained(model=model, optimizer=build_optimizer(config, model.chunks))

    def values(self, batch: RankBatch) -> tuple[npt.NDArray[np.float32], ...] | None:
        """The value before every response token, 0 where masked; None off the last pipeline stage."""
        model = self._trained.model
        found = score_batch(batch, model, ScoringObjective(groups=model.groups, values=True))
        return None if found is None else tuple(found)

    def step(self, batch: RankBatch, members: Sequence[tuple[int, ...]], *, factor: float) -> dict[str, float]:
        """One optimizer step towards the batch's returns; `factor` is what the schedule makes of the learning rate."""
        section = self._config.critic
        lr = section.lr * factor
        result = update(
            self._trained,
            batch,
            members,
            config=self._config,
            lr=lr,
            objective=lambda scaling: CriticObjective(scaling=scaling, section=section),
        )
        report = reduce_logs(result.logs, self._trained.model.groups)
        return {
            "value_loss": report["loss"],
            "value_clip_fraction": report["value_clip_fraction"],
            "critic_grad_norm": result.grad_norm,
            "critic_lr": lr,
            "critic_skipped": float(not result.moved),
        }

    def save(self, directory: str, *, like: str) -> None:
        """Write weights and optimizer state; collective."""
        model = self._trained.model
        export_weights(f"{directory}/{WEIGHTS}", model.architecture, model.chunks, model.groups, like=like)
        save_state(directory, self._trained.optimizer, Counters(), model.groups)

    def load(self, directory: str) -> None:
        """Take up what `save` wrote: all of it in the same layout, the weights in any other."""
        with device_scope():
            self._trained.model.load(f"{directory}/{WEIGHTS}")
            self._trained.optimizer.reload_model_params()
            load_state(directory, self._trained.optimizer, self._trained.model.groups)
