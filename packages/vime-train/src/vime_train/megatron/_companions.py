"""What stands beside the policy, as `[algorithm]` asks: reference, teacher, critic; and what they make of a batch.

Always true:

- the reference and the critic begin as the policy is when reinforcement learning begins, the reference again whenever
  it is renewed, and a checkpoint keeps them, so that a resumed run goes on with the same ones;
- a batch is scored once, before its first step, with every model's weights of that time, at the temperature that it
  was sampled with;
- without an option that needs a model, that model does not exist and no pass is made for it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vime_metrics import Mean
from vime_metrics.torch import all_reduce
from vime_train.algorithm import token_advantages
from vime_train.megatron._critic import Critic
from vime_train.megatron._frozen import FrozenModel
from vime_train.megatron._objectives import ScoringObjective
from vime_train.megatron._routing_replay import recorded_routing
from vime_train.megatron._scoring import score_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from vime_metrics import Metric
    from vime_train.config import RunConfig
    from vime_train.megatron._rank_model import RankModel
    from vime_train.rollout import RankBatch

REFERENCE = "reference"
CRITIC = "critic"


class Companions:
    """The models around the policy of one rank."""

    def __init__(self, config: RunConfig, policy: RankModel, *, model_path: str) -> None:
        """Read the models that are named by a directory; the others are made when training begins."""
        self._config = config
        self._policy = policy
        self._model_path = model_path
        self._critic: Critic | None = None
        section = config.algorithm
        self._reference = self._read(section.kl.reference, "algorithm.kl.reference")
        served = section.distillation.engines > 0
        teacher = None if served else section.distillation.teacher
        self._teacher = self._read(teacher, "algorithm.distillation.teacher")

    def prepare(self, batch: RankBatch) -> tuple[RankBatch, dict[str, float]]:
        """The batch with everything that its steps need, and figures of it that are means over all its tokens."""
        self._begin()
        batch = self._scored(batch)
        section = self._config.algorithm
        if not section.needs_token_advantages:
            return batch, {}
        figures: dict[str, Metric] = {}
        groups = self._policy.groups
        if groups.is_last_stage:
            found = token_advantages(batch, section, group=groups.dp, device=groups.device)
            columns = {**batch.columns} if found.returns is None else {**batch.columns, "returns": found.returns}
            batch = replace(batch, advantages=found.advantages, columns=columns)
            if groups.tp_rank == 0 and groups.cp_rank == 0:
                sums = {"kl": found.kl, "reverse_kl": found.reverse_kl}
                figures = {name: Mean(total, found.tokens) for name, total in sums.items() if total is not None}
        return batch, all_reduce(figures)

    def step(self, batch: RankBatch, members: Sequence[tuple[int, ...]], *, factor: float) -> dict[str, float]:
        """The critic's step, if there is one; `factor` scales its learning rate."""
        return {} if self._critic is None else self._critic.step(batch, members, factor=factor)

    def renew_reference(self) -> None:
        """Forget the reference: the next batch begins with the policy, as the first one did, also after a load."""
        self._reference = None

    def save(self, directory: str) -> None:
        """Write what cannot be read again from where it came; nothing before training has begun."""
        section = self._config.algorithm
        if self._reference is not None and section.kl.reference is None:
            self._reference.export(f"{directory}/{REFERENCE}", like=self._model_path)
        if self._critic is not None:
            self._critic.save(f"{directory}/{CRITIC}", like=self._model_path)

    def load(self, directory: str) -> None:
        """Take up what `save` wrote; what it did not write begins again with the policy."""
        reference = Path(directory, REFERENCE)
        if self._config.algorithm.kl.reference is None:
            self._reference = self._read(str(reference), "the checkpoint's reference") if reference.is_dir() else None
        self._critic = None
        if Path(directory, CRITIC).is_dir():
            self._critic = Critic(self._policy, self._config)
            self._critic.load(f"{directory}/{CRITIC}")

    def _begin(self) -> None:
        section = self._config.algorithm
        if section.needs_reference and self._reference is None:
            self._reference = FrozenModel.copy_of(self._policy, self._config)
        if section.has_critic and self._critic is None:
            self._critic = Critic(self._policy, self._config)

    def _scored(self, batch: RankBatch) -> RankBatch:
        """All passes; off the last stage they are run and their results are nowhere."""
        section, temperature = self._config.algorithm, self._config.rollout.temperature
        columns: dict[str, tuple[npt.NDArray[np.float32], ...] | None] = {}
        old = None
        if section.old_log_probs == "recompute":
            scoring = ScoringObjective(groups=self._policy.groups, temperature=temperature)
            with recorded_routing(self._policy.chunks, on=section.routing_replay):
                old = score_batch(batch, self._policy, scoring)
            columns["rollout_log_probs"] = batch.old_log_probs
        if self._reference is not None:
            columns["reference_log_probs"] = self._reference.log_probs(batch, temperature=temperature)
        if section.distillation.coefficient > 0 and not section.distillation.engines:
            columns["teacher_log_probs"] = (
                columns["reference_log_probs"]
                if self._teacher is None
                else self._teacher.log_probs(batch, temperature=temperature)
            )
        if self._critic is not None:
            columns["values"] = self._critic.values(batch)
        found = {name: column for name, column in columns.items() if column is not None}
        return replace(
            batch,
            old_log_probs=batch.old_log_probs if old is None else tuple(old),
            columns={**batch.columns, **found},
        )

    def _read(self, directory: str | None, key: str) -> FrozenModel | None:
        if directory is None:
            return None
        vocab_size = self._policy.architecture.vocab_size
        return FrozenModel.read(directory, self._policy.groups, self._config, vocab_size=vocab_size, key=key)
