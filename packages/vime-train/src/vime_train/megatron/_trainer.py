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

from vime_train.megatron._architecture import check_layout, read_architecture
from vime_train.megatron._checkpoint import WEIGHTS, Counters, Restored, load_state, save_state
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._groups import start_groups, stop_groups
from vime_train.megatron._hf_weights import export_weights, load_weights
from vime_train.megatron._micro_batch import MicroBatchBuilder, steps_of
from vime_train.megatron._model import build_model
from vime_train.megatron._objectives import PolicyObjective, Scaling, SupervisedObjective
from vime_train.megatron._optimizer import apply_gradients, build_optimizer, zero_gradients
from vime_train.megatron._plan_check import check_same_plan
from vime_train.megatron._report import reduce_logs
from vime_train.megatron._rope import inverse_frequencies
from vime_train.megatron._schedule import run_micro_batches
from vime_train.megatron._scoring import compare_log_probs, score_batch
from vime_train.megatron._skipped import SkippedStep, describe_skipped
from vime_train.plugins import run_hooks

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
                self._build()
            except BaseException:
                stop_groups()
                raise

    def _build(self) -> None:
        config, groups = self._config, self._groups
        self._chunks = build_model(self._architecture, groups, config)
        load_weights(self._model_path, self._architecture, self._chunks, groups)
        self._optimizer = build_optimizer(config, self._chunks)
        rotates = not self._chunks.uses_transformer_engine
        self._builder = MicroBatchBuilder(
            groups=groups,
            batching=config.batching,
            pad_multiple=self._chunks.pad_multiple,
            inverse_frequencies=inverse_frequencies(self._architecture).to(groups.device) if rotates else None,
        )

    def train(self, batch: RankBatch) -> list[dict[str, float]]:
        """Run every optimizer step of the plan.

        With `algorithm.old_log_probs = "recompute"` the batch is scored first, under the weights as they are before the
        first step, and those log-probs take the place of the engine's.

        Returns:
            One report per step, the same on every rank: `loss`, `tokens` (unmasked), `rollouts`, `clip_fraction`,
            `approx_kl`, `grad_norm` before clipping, `lr`, and `skipped` (1 if the gradients were not finite).

        Raises:
            PlanMismatchError: ranks hold parts of different plans; nothing has moved.
            PluginCallError: a hook or a loss of the user's failed.
        """
        check_same_plan(batch, self._groups)
        hooks = self._config.hooks
        batch = run_hooks(hooks.before_log_probs, "hooks.before_log_probs", batch)
        if self._config.algorithm.old_log_probs == "recompute":
            batch = self._with_own_log_probs(batch)
        lr = self._config.optimizer.lr
        reports = []
        for step, rollouts in enumerate(batch.schedule.global_batch_sizes):
            batch = run_hooks(hooks.before_train_step, "hooks.before_train_step", batch, step=step)
            report = self._step(batch, step, lr=lr, objective=self._policy_objective)
            self._counters = replace(self._counters, rollouts=self._counters.rollouts + rollouts)
            reports.append({**report, "rollouts": float(rollouts)})
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
        return score_batch(batch, self._builder, self._chunks, self._groups)

    def log_prob_difference(self, batch: RankBatch) -> dict[str, float]:
        """How far the batch's log-probs are from those under the weights as they are (law T2).

        Returns:
            `max` and `mean` of the absolute difference and the number of `tokens` compared, over the unmasked response
            tokens of all ranks; the same on every rank.
        """
        check_same_plan(batch, self._groups)
        return compare_log_probs(score_batch(batch, self._builder, self._chunks, self._groups), batch, self._groups)

    def export(self, directory: str) -> None:
        """Write the model as a Hugging Face directory that is whole once it is there; rank 0 writes, all wait.

        Raises:
            OSError: rank 0 could not write, on rank 0; RuntimeError on the others.
        """
        export_weights(directory, self._architecture, self._chunks, self._groups, like=self._model_path)

    def save(self, directory: str) -> None:
        """Write a checkpoint: a Hugging Face directory, and each rank's optimizer, random and counter state."""
        self.export(f"{directory}/{WEIGHTS}")
        save_state(directory, self._optimizer, self._counters, self._groups)
        dist.barrier()

    def load(self, directory: str) -> Restored:
        """Take up a checkpoint: all of it in the layout that wrote it, its weights and counters in any other.

        Returns:
            `"exact"` or `"weights"`, the same on every rank.

        Raises:
            ValueError: no checkpoint is there, or it is of another model.
        """
        with device_scope():
            load_weights(f"{directory}/{WEIGHTS}", self._architecture, self._chunks, self._groups)
            self._optimizer.reload_model_params()
            self._counters, restored = load_state(directory, self._optimizer, self._groups)
            return restored

    def close(self) -> None:
        """Leave the process groups. The trainer is of no use afterwards."""
        stop_groups()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _step(
        self, batch: RankBatch, step: int, *, lr: float, objective: Callable[[Scaling], LossFunction]
    ) -> dict[str, float]:
        members = list(steps_of(batch))[step]
        scaling = Scaling(
            groups=self._groups,
            num_microbatches=len(members),
            calculate_per_token_loss=self._config.train.calculate_per_token_loss,
        )
        micro_batches = self._builder.build(batch, members)
        with device_scope():
            zero_gradients(self._optimizer, self._chunks)
            logs = run_micro_batches(self._chunks, self._groups, micro_batches, objective(scaling))
            moved, norm = apply_gradients(self._optimizer, lr=lr, clip_grad=self._config.optimizer.clip_grad)
        if not moved:
            self.skipped.append(
                describe_skipped(
                    batch, members, logs, self._chunks, self._groups, step=self._counters.steps, grad_norm=norm
                )
            )
        counters = self._counters
        self._counters = replace(counters, steps=counters.steps + 1, skipped=counters.skipped + (not moved))
        return {**reduce_logs(logs, self._groups), "grad_norm": norm, "lr": lr, "skipped": float(not moved)}

    def _policy_objective(self, scaling: Scaling) -> LossFunction:
        return PolicyObjective(scaling=scaling, section=self._config.algorithm)

    def _supervised_objective(self, scaling: Scaling) -> LossFunction:
        return SupervisedObjective(scaling=scaling)

    def _with_own_log_probs(self, batch: RankBatch) -> RankBatch:
        found = score_batch(batch, self._builder, self._chunks, self._groups)
        return batch if found is None else replace(batch, old_log_probs=tuple(found))
