"""One rank of the trainer: a plain class that a process or an actor may hold.

Always true:

- every public call is collective: all ranks make it, in the same order, with parts of the same plan;
- the counts of micro-batches come from the plan; ranks exchange none, and a rank with another plan stops the call on all;
- after a call the weights have moved by whole optimizer steps or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import torch
import torch.distributed as dist
from vime_cp import gather_responses

from vime_train.megatron._architecture import check_layout, read_architecture
from vime_train.megatron._checkpoint import WEIGHTS, Counters, Restored, load_state, save_state
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._groups import start_groups, stop_groups
from vime_train.megatron._hf_weights import export_weights, load_weights
from vime_train.megatron._metrics import reduce_logs
from vime_train.megatron._micro_batch import MicroBatchBuilder, steps_of
from vime_train.megatron._model import build_model
from vime_train.megatron._objectives import PolicyObjective, Scaling, ScoringObjective, SupervisedObjective
from vime_train.megatron._optimizer import apply_gradients, build_optimizer, zero_gradients
from vime_train.megatron._plan_check import check_same_plan
from vime_train.megatron._rope import inverse_frequencies
from vime_train.megatron._schedule import LossFunction, run_micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from vime_train.config import RunConfig
    from vime_train.rollout import RankBatch


class Trainer:
    """Holds this rank's share of the model, its optimizer and its process groups, from construction to `close`."""

    def __init__(self, config: RunConfig, *, model_path: str, rank: int, world_size: int, init_method: str) -> None:
        """Join the job and load the weights of a Hugging Face directory; all ranks construct at the same time.

        Args:
            config: the run.
            model_path: Hugging Face directory with weights; its tokenizer goes into every export.
            rank: this process among the trainer's ranks.
            world_size: ranks in all, the size of `config.layout`.
            init_method: where ranks find each other, `file://...` on one machine (a TCP store listens on all interfaces).

        Raises:
            ValueError: the world is not the layout's size, or the model cannot be cut or computed.
        """
        self._config = config
        self._model_path = model_path
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
            self._chunks = build_model(
                self._architecture,
                self._groups,
                dtype="float32",
                calculate_per_token_loss=config.train.calculate_per_token_loss,
                seed=config.seed,
            )
            load_weights(model_path, self._architecture, self._chunks, self._groups)
            self._optimizer = build_optimizer(config.optimizer, self._chunks, dtype="float32")
        frequencies = None
        if not self._chunks.uses_transformer_engine:
            frequencies = inverse_frequencies(self._architecture).to(self._groups.device)
        self._builder = MicroBatchBuilder(groups=self._groups, inverse_frequencies=frequencies)
        self._counters = Counters()

    def train(self, batch: RankBatch) -> list[dict[str, float]]:
        """Run every optimizer step of the plan; returns one report per step, the same on every rank.

        Raises:
            PlanMismatchError: ranks hold parts of different plans; nothing has moved.
        """
        lr = self._config.optimizer.lr
        with device_scope():
            check_same_plan(batch, self._groups)
            return [
                self._step(batch, step, lr=lr, objective=self._policy_objective)
                for step in range(len(batch.schedule.num_microbatches))
            ]

    def supervised_step(self, batch: RankBatch, *, lr: float) -> dict[str, float]:
        """One optimizer step on the log-likelihood of the response tokens, with the given learning rate.

        Raises:
            ValueError: the plan has more than one step.
            PlanMismatchError: ranks hold parts of different plans.
        """
        steps = len(batch.schedule.num_microbatches)
        if steps != 1:
            raise ValueError(f"supervised_step: the plan has {steps} steps: plan one optimizer step per call")
        with device_scope():
            check_same_plan(batch, self._groups)
            return self._step(batch, 0, lr=lr, objective=self._supervised_objective)

    def log_probs(self, batch: RankBatch) -> list[npt.NDArray[np.float32]] | None:
        """Log-probs of every sample's response tokens under the weights as they are; on the last stage, None elsewhere.

        Masked tokens have log-prob 0.
        """
        with device_scope():
            check_same_plan(batch, self._groups)
            return self._log_probs(batch)

    def log_prob_difference(self, batch: RankBatch) -> dict[str, float]:
        """Largest and mean |rollout log-prob - log-prob under the weights as they are|, over all unmasked tokens (law T2).

        Returns:
            `max`, `mean` and `tokens`, the same on every rank.
        """
        with device_scope():
            check_same_plan(batch, self._groups)
            found = self._log_probs(batch)
            differences = np.zeros(0)
            if found is not None:
                pairs = zip(found, batch.old_log_probs, batch.loss_masks, strict=True)
                differences = np.concatenate([np.zeros(0), *(np.abs(new - old)[mask != 0] for new, old, mask in pairs)])
            return self._reduce_differences(differences)

    def export(self, directory: str) -> None:
        """Write the model as a Hugging Face directory that is whole once it is there; rank 0 writes, all return together."""
        with device_scope():
            export_weights(directory, self._architecture, self._chunks, self._groups, like=self._model_path)

    def save(self, directory: str) -> None:
        """Write a checkpoint: weights as a Hugging Face directory, and each rank's optimizer, random and counter state."""
        with device_scope():
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
        micro_batches = self._builder.build(batch, members)
        scaling = Scaling(
            groups=self._groups,
            num_microbatches=len(members),
            calculate_per_token_loss=self._config.train.calculate_per_token_loss,
        )
        zero_gradients(self._optimizer, self._chunks)
        logs = run_micro_batches(self._chunks, self._groups, micro_batches, objective(scaling))
        moved, norm = apply_gradients(self._optimizer, lr=lr, clip_grad=self._config.optimizer.clip_grad)
        return {
            **reduce_logs(logs, self._groups),
            "grad_norm": norm,
            "lr": lr,
            "skipped": float(not moved),
            "rollouts": float(batch.schedule.global_batch_sizes[step]),
        }

    def _policy_objective(self, scaling: Scaling) -> LossFunction:
        return PolicyObjective(scaling=scaling, section=self._config.algorithm)

    def _supervised_objective(self, scaling: Scaling) -> LossFunction:
        return SupervisedObjective(scaling=scaling)

    def _log_probs(self, batch: RankBatch) -> list[npt.NDArray[np.float32]] | None:
        found: dict[int, npt.NDArray[np.float32]] = {}
        for members in steps_of(batch):
            micro_batches = self._builder.build(batch, members)
            with torch.no_grad():
                logs = run_micro_batches(
                    self._chunks, self._groups, micro_batches, ScoringObjective(groups=self._groups), forward_only=True
                )
            for micro_batch, scores in (log["scored"] for log in logs):
                columns = gather_responses(scores, micro_batch.packed, gradient="none")
                found.update(zip(micro_batch.members, (x.cpu().numpy() for x in columns), strict=True))
        return [found[i] for i in range(len(batch.tokens))] if self._groups.is_last_stage else None

    def _reduce_differences(self, differences: npt.NDArray[np.float64]) -> dict[str, float]:
        device = self._groups.device
        largest = torch.tensor(differences.max(initial=0.0), dtype=torch.float64, device=device)
        mine = self._groups.tp_rank == 0 and self._groups.cp_rank == 0
        sums = torch.tensor([differences.sum(), differences.size], dtype=torch.float64, device=device) * mine
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        dist.all_reduce(sums)
        total, tokens = sums.tolist()
        return {"max": float(largest), "mean": total / tokens if tokens else 0.0, "tokens": tokens}
