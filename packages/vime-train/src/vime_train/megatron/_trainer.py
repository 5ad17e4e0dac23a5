"""One rank of the trainer: a plain class that a process or an actor may hold.

Always true:

- every public call is collective: all ranks make it, in the same order, with parts of the same plan;
- the counts of micro-batches come from the plan; ranks exchange none, and a rank with another plan stops the call on
  all;
- after a call the weights have moved by whole optimizer steps or not at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import torch
import torch.distributed as dist

from vime_train.algorithm import learning_rate_factor
from vime_train.megatron._architecture import check_layout, read_architecture
from vime_train.megatron._checkpoint import WEIGHTS, Counters, Restored, load_state, save_state
from vime_train.megatron._companions import Companions
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._groups import start_groups, stop_groups
from vime_train.megatron._hf_weights import export_weights
from vime_train.megatron._micro_batch import steps_of
from vime_train.megatron._objectives import PolicyObjective, Scaling, ScoringObjective, SupervisedObjective
from vime_train.megatron._optimizer import build_optimizer
from vime_train.megatron._plan_check import check_same_plan
from vime_train.megatron._rank_model import RankModel
from vime_train.megatron._recording import recorded
from vime_train.megatron._report import reduce_logs
from vime_train.megatron._routing_replay import replayed_routing
from vime_train.megatron._scoring import compare_log_probs, score_batch
from vime_train.megatron._skipped import SkippedStep, describe_skipped
from vime_train.megatron._update import Trained, update
from vime_train.plugins import run_hooks, run_start_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from vime_train.config import RunConfig
    from vime_train.megatron._schedule import LossFunction
    from vime_train.rollout import RankBatch


class Trainer:
    """This rank's share of the model, its optimizer and its process groups, from construction to `close`.

    `skipped` holds a record of every optimizer step that was skipped because its gradients were not finite.
    """

    def __init__(self, config: RunConfig, *, model_path: str, rank: int, world_size: int, init_method: str) -> None:
        """Join the job and load the weights of a Hugging Face directory; all ranks construct at the same time.

        Args:
            config: the run.
            model_path: Hugging Face directory with weights; its tokenizer goes into every export.
            rank: this process among the trainer's ranks.
            world_size: ranks in all, the size of `config.layout`.
            init_method: where ranks find each other, `file://...` on one machine (a TCP store listens on all
                interfaces).

        Raises:
            ValueError: the world is not the layout's size, or the model cannot be cut or computed.
            PluginCallError: a hook of the user's failed.
        """
        self.skipped: list[SkippedStep] = []
        self._config = config
        self._model_path = model_path
        self._counters = Counters()
        self._architecture = read_architecture(model_path)
        check_layout(self._architecture, config.layout)
        torch.manual_seed(config.seed)
        with device_scope():
            self._groups = start_groups(
                config.layout,
                rank=rank,
                world_size=world_size,
                init_method=init_method,
                timeout_seconds=config.cluster.train_timeout_seconds,
            )
            try:
                run_start_hooks(config.hooks.before_model, config, rank=rank)
                self._build()
            except BaseException:
                stop_groups()
                raise

    def _build(self) -> None:
        config = self._config
        model = RankModel.build(self._architecture, self._groups, config, trained=True)
        model.load(self._model_path)
        self._policy = Trained(model=model, optimizer=build_optimizer(config, model.chunks))
        self._companions = Companions(config, model, model_path=self._model_path)

    def train(
        self,
        batch: RankBatch,
        *,
        critic_only: bool = False,
        trace_to: str | None = None,
        memory_to: str | None = None,
    ) -> list[dict[str, float]]:
        """Run every optimizer step of the plan; with `critic_only` those of the critic, and the policy stays.

        With `trace_to` or `memory_to`, a directory, this rank's profile or CUDA memory history goes there.

        What `[algorithm]` asks for is scored first, under the weights as they are before the first step: the policy's
        own log-probs, the reference's, the teacher's, the critic's values. The first call sets the reference and the
        critic to the policy as it is then.

        Returns:
            One report per step, the same on every rank: `loss`, `tokens` (unmasked), `rollouts`, `clip_fraction`,
            `approx_kl`, `grad_norm` before clipping, `lr`, `skipped` (1 if the gradients were not finite), and what
            the algorithm adds: `kl`, `entropy`, `correction_weight`, `value_loss` and so on. With `critic_only` the
            critic's and `rollouts` alone.

        Raises:
            PlanMismatchError: ranks hold parts of different plans; nothing has moved.
            PluginCallError: a hook or a loss of the user's failed.
        """
        check_same_plan(batch, self._groups)
        with recorded(self._groups.rank, trace_to=trace_to, memory_to=memory_to):
            return self._train(batch, critic_only=critic_only)

    def _train(self, batch: RankBatch, *, critic_only: bool) -> list[dict[str, float]]:
        hooks = self._config.hooks
        batch = run_hooks(hooks.before_log_probs, "hooks.before_log_probs", batch)
        batch, figures = self._companions.prepare(batch)
        reports = []
        for step, rollouts in enumerate(batch.schedule.global_batch_sizes):
            batch = run_hooks(hooks.before_train_step, "hooks.before_train_step", batch, step=step)
            reports.append(
                {**self._rl_step(batch, step, critic_only=critic_only), **figures, "rollouts": float(rollouts)}
            )
        return reports

    def supervised_step(self, batch: RankBatch, *, lr: float) -> dict[str, float]:
        """One optimizer step on the log-likelihood of the response tokens, with the given learning rate.

        Raises:
            ValueError: the plan has more than one step.
            PlanMismatchError: ranks hold parts of different plans.
        """
        steps = len(batch.schedule.num_microbatches)
        if steps != 1:
            raise ValueError(f"supervised_step: the plan has {steps} steps: plan one optimizer step per call")
        check_same_plan(batch, self._groups)
        return self._step(batch, 0, lr=lr, objective=self._supervised_objective)

    def log_probs(self, batch: RankBatch) -> list[npt.NDArray[np.float32]] | None:
        """Log-probs of every sample's response tokens under the weights as they are, 0 where masked.

        Returns:
            One array per sample, in the batch's order, on the last pipeline stage; None elsewhere.
        """
        check_same_plan(batch, self._groups)
        return self._scores(batch)

    def log_prob_difference(self, batch: RankBatch) -> dict[str, float]:
        """How far the batch's log-probs are from those under the weights as they are (law T2).

        Returns:
            `max` and `mean` of the absolute difference and the number of `tokens` compared, over the unmasked response
            tokens of all ranks; the same on every rank.
        """
        check_same_plan(batch, self._groups)
        return compare_log_probs(self._scores(batch), batch, self._groups)

    def export(self, directory: str) -> None:
        """Write the model as a Hugging Face directory that is whole once it is there; rank 0 writes, all wait.

        Raises:
            OSError: rank 0 could not write, on rank 0; RuntimeError on the others.
        """
        export_weights(directory, self._architecture, self._policy.model.chunks, self._groups, like=self._model_path)

    def save(self, directory: str) -> None:
        """Write a checkpoint: a Hugging Face directory, and each rank's optimizer, random and counter state."""
        self.export(f"{directory}/{WEIGHTS}")
        self._companions.save(directory)
        save_state(directory, self._policy.optimizer, self._counters, self._groups)
        dist.barrier()

    def load(self, directory: str) -> Restored:
        """Take up a checkpoint: all of it in the layout that wrote it, its weights and counters in any other.

        Returns:
            `"exact"` or `"weights"`, the same on every rank.

        Raises:
            ValueError: no checkpoint is there, or it is of another model.
        """
        with device_scope():
            self._policy.model.load(f"{directory}/{WEIGHTS}")
            self._policy.optimizer.reload_model_params()
            self._companions.load(directory)
            self._counters, restored = load_state(directory, self._policy.optimizer, self._groups)
            return restored

    def renew_reference(self) -> None:
        """Let the reference be the policy as it is now, from the next call of `train` on."""
        self._companions.renew_reference()

    def close(self) -> None:
        """Leave the process groups. The trainer is of no use afterwards."""
        stop_groups()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _rl_step(self, batch: RankBatch, step: int, *, critic_only: bool) -> dict[str, float]:
        """One step of policy and critic, at the rate that the schedule has reached."""
        config = self._config
        done = self._counters.rollouts + batch.step_rollouts[step]
        total = config.train.iterations * config.rollouts_per_iteration
        factor = learning_rate_factor(config.optimizer, rollouts=done, total=total)
        lr = config.optimizer.lr * factor
        report = {}
        if not critic_only:
            with replayed_routing(self._policy.model.chunks, on=config.algorithm.routing_replay):
                report = self._step(batch, step, lr=lr, objective=self._policy_objective)
        self._counters = replace(self._counters, rollouts=done)
        return {**report, **self._companions.step(batch, list(steps_of(batch))[step], factor=factor)}

    def _step(
        self, batch: RankBatch, step: int, *, lr: float, objective: Callable[[Scaling], LossFunction]
    ) -> dict[str, float]:
        members = list(steps_of(batch))[step]
        result = update(self._policy, batch, members, config=self._config, lr=lr, objective=objective)
        if not result.moved:
            self.skipped.append(
                describe_skipped(
                    batch,
                    members,
                    result.logs,
                    self._policy.model.chunks,
                    self._groups,
                    step=self._counters.steps,
                    grad_norm=result.grad_norm,
                )
            )
        counters = self._counters
        self._counters = replace(counters, steps=counters.steps + 1, skipped=counters.skipped + (not result.moved))
        report = reduce_logs(result.logs, self._groups)
        return {**report, "grad_norm": result.grad_norm, "lr": lr, "skipped": float(not result.moved)}

    def _policy_objective(self, scaling: Scaling) -> LossFunction:
        return PolicyObjective(
            scaling=scaling, section=self._config.algorithm, temperature=self._config.rollout.temperature
        )

    def _supervised_objective(self, scaling: Scaling) -> LossFunction:
        return SupervisedObjective(scaling=scaling)

    def _scores(self, batch: RankBatch) -> list[npt.NDArray[np.float32]] | None:
        return score_batch(batch, self._policy.model, ScoringObjective(groups=self._groups))
