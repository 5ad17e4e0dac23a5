"""Run as every rank of a gloo world (see `run_ranks`): losses that need other ranks, compared with the whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import _loss_oracle as loss_oracle
import _oracle as oracle
from vime_cp import (
    ContextParallel,
    PackedMicroBatch,
    gae,
    gather_responses,
    gspo_loss,
    log_probs_and_entropy,
    mis,
    pack_micro_batch,
    pack_response,
    sample_weights,
    weighted_sum,
    whiten,
)


def largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0


def pack(samples: list[Any], cp: ContextParallel) -> PackedMicroBatch:
    return pack_micro_batch(
        [s.tokens for s in samples], [s.response_length for s in samples], [s.mask for s in samples], cp=cp
    )


def log_probs_over_tp(group: dist.ProcessGroup) -> dict[str, float]:
    """Each rank holds its part of the vocabulary; TP 1 is the plain softmax."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    gen = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5 * size, generator=gen, dtype=torch.float64)
    targets = torch.randint(0, 5 * size, (20,), generator=gen)
    whole, part = logits.clone().requires_grad_(), logits.chunk(size, 1)[rank].clone().requires_grad_()
    scored = log_probs_and_entropy(part, targets, group=group, entropy=True, chunk_size=3, temperature=0.8)
    log_p = torch.log_softmax(whole / 0.8, -1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    (log_p.gather(1, targets[:, None]).sum() + (entropy**2).sum()).backward()
    (scored.log_probs.sum() + (scored.entropy**2).sum()).backward()
    return {
        "entropy": largest_difference(scored.entropy, entropy),
        "gradient": largest_difference(part.grad, whole.grad.chunk(size, 1)[rank]),
    }


def gspo_over_cp(cp: ContextParallel) -> float:
    """Two micro-batches, one backward each; the gradient is that of whole sequences."""
    samples, params = oracle.random_samples(7, 7), oracle.parameters()
    weights = sample_weights(
        "rollout_mean", [s.mask.sum() for s in samples], rollout_ids=[s.rollout_id for s in samples]
    )
    whole = params[0].new_zeros(())
    for sample, weight in zip(samples, weights, strict=True):
        scores = loss_oracle.response_scores(params, sample.tokens, sample.response_length)
        columns = scores | {"old": sample.old_log_probs, "advantages": sample.advantages, "mask": sample.mask}
        whole = whole + weight * (loss_oracle.gspo(columns, 9.0, 9.0) * sample.mask).sum()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(whole, params)])
    for members in ([0, 3, 5], [], [1, 2, 4, 6]):
        held = [samples[i] for i in members]
        batch = pack(held, cp)
        logits = loss_oracle.logits(params, batch.tokens[0], batch.position_ids[0])
        loss = gspo_loss(
            log_probs_and_entropy(logits, batch.labels, mask=batch.mask).log_probs,
            pack_response([s.old_log_probs for s in held], batch).double(),
            pack_response([s.advantages for s in held], batch).double(),
            sample_index=batch.sample_index,
            num_samples=batch.num_samples,
            cp=cp,
            clip_low=9.0,
            clip_high=9.0,
            mask=batch.mask,
        ).loss
        weighted_sum(loss, batch.mask, weights[members], batch.sample_index).backward()
    gradient = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(gradient)
    return largest_difference(gradient, expected)


def weights_over_cp(cp: ContextParallel) -> float:
    samples = oracle.random_samples(3, 6)

    def weights(rank: ContextParallel) -> list[torch.Tensor]:
        batch = pack(samples, rank)
        train = pack_response([s.old_log_probs / 9 for s in samples], batch)
        index = {"sample_index": batch.sample_index, "num_samples": batch.num_samples}
        corrected = mis(train, 0 * train, level="sequence", high=9.0, mask=batch.mask, cp=rank, veto=0.7, **index)
        return gather_responses(corrected.weights, batch, gradient="none")

    return max(map(largest_difference, weights(cp), weights(ContextParallel())))


def gae_over_cp(cp: ContextParallel) -> float:
    samples = oracle.random_samples(5, 6)
    rewards = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def advantages(rank: ContextParallel) -> list[torch.Tensor]:
        batch = pack(samples, rank)
        values = pack_response([s.advantages for s in samples], batch)
        return gather_responses(gae(rewards, values, batch, gamma=0.9, lam=0.8).advantages, batch, gradient="none")

    return max(map(largest_difference, advantages(cp), advantages(ContextParallel())))


def whitening_with_an_empty_rank(group: dist.ProcessGroup) -> float:
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    values = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1000
    mine = torch.arange(30) % max(size - 1, 1) == rank
    return largest_difference(whiten(values[mine], group=group), whiten(values)[mine])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    world = dist.group.WORLD
    results = {"tp": log_probs_over_tp(world), "whiten": whitening_with_an_empty_rank(world)}
    for layout in ("zigzag", "contiguous"):
        cp = ContextParallel(rank=dist.get_rank(), size=dist.get_world_size(), layout=layout, group=world)
        results[layout] = {"gspo": gspo_over_cp(cp), "mis": weights_over_cp(cp), "gae": gae_over_cp(cp)}
    Path(os.environ["RESULT"]).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
