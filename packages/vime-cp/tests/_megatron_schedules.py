"""Run as every rank of a gloo world of 4 (see `run_ranks`): the adapter inside Megatron's own schedules.

Each case trains one step of a small GPTModel through Megatron's schedule, its DDP and ``finalize_model_grads`` and
compares every parameter's gradient with that of J, written down by its definition, of the same model on whole samples.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from _megatron_on_cpu import megatron_on_cpu

megatron_on_cpu()
warnings.filterwarnings("ignore")

from megatron.core import parallel_state as mpu  # noqa: E402
from megatron.core.packed_seq_params import PackedSeqParams  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402

import _megatron_model as toy  # noqa: E402  (Megatron asks for CUDA while it is imported)
import _oracle as oracle  # noqa: E402
from vime_cp import (  # noqa: E402
    ContextParallel,
    PackedMicroBatch,
    log_probs_and_entropy,
    megatron_loss,
    pack_micro_batch,
    pack_response,
    packed_length,
    sample_weights,
    weighted_sum,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One layout and one way of scaling."""

    name: str
    tp: int = 1
    pp: int = 1
    vpp: int | None = None
    cp: int = 1
    layout: str = "zigzag"
    num_microbatches: int = 3
    per_token: bool = False
    count_tokens: bool = False
    aggregation: str = "rollout_mean"
    all_masked: bool = False

    @property
    def pad_multiple(self) -> int:
        """Interleaved stages exchange one shape only: at PP 2 Megatron's shape messages to both neighbours cross."""
        return 256 if self.vpp else 2

    @property
    def dp(self) -> int:
        return dist.get_world_size() // (self.tp * self.pp * self.cp)


CASES = [
    Case(name="dp4"),
    Case(name="dp4 one micro-batch, per token", num_microbatches=1, per_token=True),
    Case(name="cp4", cp=4, aggregation="token_mean"),
    Case(name="cp4 per token, tokens counted", cp=4, per_token=True, count_tokens=True, aggregation="prompt_mean"),
    Case(name="cp2 dp2 contiguous", cp=2, layout="contiguous", aggregation="sample_mean"),
    Case(name="cp2 dp2 contiguous, per token", cp=2, layout="contiguous", per_token=True),
    Case(name="cp2 dp2 per token, tokens counted", cp=2, per_token=True, count_tokens=True, aggregation="constant"),
    Case(name="cp2 dp2, tokens counted", cp=2, count_tokens=True),
    Case(name="tp2 cp2", tp=2, cp=2),
    Case(name="tp2 dp2 per token", tp=2, per_token=True),
    Case(name="pp2 cp2", pp=2, cp=2, num_microbatches=4),
    Case(name="pp2 dp2 per token, tokens counted", pp=2, per_token=True, count_tokens=True),
    Case(name="pp2 tp2 per token", pp=2, tp=2, per_token=True),
    Case(name="pp2 vpp2 cp2", pp=2, vpp=2, cp=2, num_microbatches=4, aggregation="token_mean"),
    Case(name="pp2 vpp2 dp2 per token", pp=2, vpp=2, num_microbatches=2, per_token=True),
    Case(name="cp2 dp2 all masked", cp=2, all_masked=True),
    Case(name="cp2 dp2 all masked, per token", cp=2, all_masked=True, per_token=True, count_tokens=True),
]


WHOLE: dict[tuple[str, str, bool], tuple[dict[str, torch.Tensor], float]] = {}


def samples_of(case: Case) -> list[Any]:
    samples = oracle.random_samples(11, 9)
    return [oracle.masked_out(s) for s in samples] if case.all_masked else samples


def weights_of(case: Case, samples: list[Any]) -> torch.Tensor:
    ids: dict[str, Any] = {
        "rollout_mean": {"rollout_ids": [s.rollout_id for s in samples]},
        "prompt_mean": {"prompt_ids": [s.prompt_id for s in samples]},
        "constant": {"constant": 37.5},
    }.get(case.aggregation, {})
    return sample_weights(case.aggregation, [s.mask.sum() for s in samples], **ids)


def causal_mask(batch: PackedMicroBatch, cp: ContextParallel) -> torch.Tensor:
    """Which of all ranks' places each local place may attend to: the same sample, itself and before."""
    places = torch.stack([batch.sample_index, batch.position_ids[0]], 1)
    everywhere = [torch.empty_like(places) for _ in range(cp.size)]
    dist.all_gather(everywhere, places, group=cp.group)
    sample, position = torch.cat(everywhere).unbind(1)
    mine, here = places.unbind(1)
    return (mine[:, None] == sample) & (here[:, None] >= position)


def model_output(model: Any, batch: PackedMicroBatch, cp: ContextParallel, packed_rotary: bool) -> torch.Tensor:
    packed = None
    if packed_rotary:
        packed = PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=batch.cu_seqlens,
            cu_seqlens_kv=batch.cu_seqlens,
            max_seqlen_q=batch.max_seqlen,
            max_seqlen_kv=batch.max_seqlen,
        )
    return model(batch.tokens, batch.position_ids, causal_mask(batch, cp), packed_seq_params=packed)


def token_losses(output: torch.Tensor, batch: PackedMicroBatch, samples: list[Any]) -> torch.Tensor:
    logits = output[0]
    new = log_probs_and_entropy(
        logits, batch.labels, group=mpu.get_tensor_model_parallel_group(), mask=batch.mask
    ).log_probs
    old = pack_response([s.old_log_probs for s in samples], batch) if samples else torch.zeros_like(new)
    advantages = pack_response([s.advantages for s in samples], batch) if samples else torch.zeros_like(new)
    return oracle.token_loss(new, old, advantages)


def train_step(case: Case) -> tuple[dict[str, torch.Tensor], float]:
    """Gradients by name after Megatron's step, and the step's loss from its logs."""
    samples, cp = samples_of(case), context_parallel(case)
    weights = weights_of(case, samples)
    packed_rotary = case.layout == "zigzag"
    chunks = toy.build_model(calculate_per_token_loss=case.per_token, packed_rotary=packed_rotary, ddp=True)
    plan = plan_of(case, len(samples))
    lengths = [
        [packed_length([len(samples[i].tokens) for i in m], cp=cp, pad_multiple=case.pad_multiple) for m in rank]
        for rank in plan
    ]
    step_tokens = case.cp * sum(map(sum, lengths))

    def forward_step(iterator: Any, model: Any) -> tuple[torch.Tensor, Any]:
        members = next(iterator)
        held = [samples[i] for i in members]
        batch = pack_micro_batch(
            [s.tokens for s in held],
            [s.response_length for s in held],
            [s.mask for s in held],
            cp=cp,
            pad_multiple=case.pad_multiple,
        )

        def loss_function(output: torch.Tensor) -> Any:
            losses = token_losses(output, batch, held)
            partial_sum = weighted_sum(losses, batch.mask, weights[members], batch.sample_index)
            return megatron_loss(
                partial_sum,
                log={"loss": partial_sum},
                num_microbatches=case.num_microbatches,
                dp=case.dp,
                cp=case.cp,
                calculate_per_token_loss=case.per_token,
                num_tokens=batch.local_length if case.count_tokens else None,
                step_num_tokens=step_tokens if case.count_tokens else None,
            )

        return model_output(model, batch, cp, packed_rotary), loss_function

    for chunk in chunks:
        chunk.zero_grad_buffer()
    mine = plan[mpu.get_data_parallel_rank()]
    iterators = [iter(mine) for _ in chunks]
    logs = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iterators if case.vpp else iterators[0],
        model=chunks if case.vpp else chunks[0],
        num_microbatches=case.num_microbatches,
        seq_length=256,
        micro_batch_size=1,
        forward_only=False,
    )
    logged = sum((log["loss"] for log in logs), torch.zeros((), dtype=torch.float64))
    dist.all_reduce(logged)
    gradients = {
        toy.global_name(chunk.module, name): param.main_grad
        for chunk in chunks
        for name, param in chunk.module.named_parameters()
    }
    return gradients, logged.item() / case.tp


def context_parallel(case: Case) -> ContextParallel:
    return ContextParallel(
        rank=mpu.get_context_parallel_rank(),
        size=case.cp,
        layout=case.layout,  # type: ignore[arg-type]
        group=mpu.get_context_parallel_group(),
        sequence_align=case.tp,
    )


def plan_of(case: Case, count: int) -> list[list[list[int]]]:
    """Samples over DP ranks and micro-batches at random: unequal numbers, siblings apart, empty micro-batches."""
    plan: list[list[list[int]]] = [[[] for _ in range(case.num_microbatches)] for _ in range(case.dp)]
    rng = random.Random(case.name)
    for i in rng.sample(range(count), count):
        plan[rng.randrange(case.dp)][rng.randrange(case.num_microbatches)].append(i)
    return plan


def whole_gradients(case: Case) -> tuple[dict[str, torch.Tensor], float]:
    """Value and gradients of J of the same model, unsplit: sample by sample, in one process."""
    key = (case.aggregation, case.layout, case.all_masked)
    if key not in WHOLE:
        WHOLE[key] = compute_whole_gradients(case)
    return WHOLE[key]


def compute_whole_gradients(case: Case) -> tuple[dict[str, torch.Tensor], float]:
    samples = samples_of(case)
    mpu.initialize_model_parallel()
    (model,) = toy.build_model(calculate_per_token_loss=False, packed_rotary=case.layout == "zigzag", ddp=False)
    cp = ContextParallel(group=mpu.get_context_parallel_group())
    losses = []
    for sample in samples:
        batch = pack_micro_batch([sample.tokens], [sample.response_length], [sample.mask], cp=cp)
        log_probs = torch.log_softmax(model_output(model, batch, cp, case.layout == "zigzag")[0], -1)
        new = log_probs.gather(1, batch.labels[:, None])[:, 0]
        first = len(sample.tokens) - sample.response_length
        loss = torch.zeros((), dtype=torch.float64)
        for t in range(sample.response_length):
            if sample.mask[t]:
                loss = loss + oracle.token_loss(new[first + t - 1], sample.old_log_probs[t], sample.advantages[t])
        losses.append(loss)
    objective = oracle.objective(case.aggregation, samples, losses, constant=37.5)
    named = dict(model.named_parameters())
    if objective.requires_grad:
        objective.backward()
    mpu.destroy_model_parallel()
    return {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in named.items()}, objective.item()


def run(case: Case) -> dict[str, float]:
    expected, objective = whole_gradients(case)
    mpu.initialize_model_parallel(case.tp, case.pp, case.vpp, context_parallel_size=case.cp)
    gradients, logged = train_step(case)
    auxiliary = gradients.pop("auxiliary", torch.zeros(())).item()
    error, largest = 0.0, 0.0
    for chunk_name, gradient in gradients.items():
        whole = expected[chunk_name]
        if whole.shape != gradient.shape:
            dim = next(d for d in range(whole.dim()) if whole.shape[d] != gradient.shape[d])
            whole = whole.chunk(case.tp, dim)[mpu.get_tensor_model_parallel_rank()]
        error = max(error, (gradient - whole).abs().max().nan_to_num(torch.inf).item())
        largest = max(largest, whole.abs().max().item())
    mpu.destroy_model_parallel()
    return {"error": error, "largest": largest, "logged": logged, "objective": objective, "auxiliary": auxiliary}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    Path(os.environ["RESULT"]).write_text(json.dumps({case.name: run(case) for case in CASES}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
