"""Run as every rank of a gloo world (see `run_ranks`): gathers over real processes, compared with the whole."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import _oracle as oracle
from vime_cp import (
    ContextParallel,
    PackedMicroBatch,
    gather_responses,
    gather_tokens,
    pack_micro_batch,
    sample_sums,
    sample_weights,
    to_tokens,
    weighted_sum,
)

COLLECTIVES = Counter()


def count_collectives(name: str) -> None:
    """Let the real collective count its calls."""
    collective = getattr(dist, name)

    def counted(*args: Any, **options: Any) -> Any:
        COLLECTIVES[name] += 1
        return collective(*args, **options)

    setattr(dist, name, counted)


def pack(samples: list[Any], cp: ContextParallel) -> PackedMicroBatch:
    return pack_micro_batch(
        [s.tokens for s in samples], [s.response_length for s in samples], [s.mask for s in samples], cp=cp
    )


def local_log_probs(params: list[torch.Tensor], batch: PackedMicroBatch) -> torch.Tensor:
    return oracle.log_probs(params, batch.tokens[0], batch.position_ids[0], batch.labels)


def summed_gradient(params: list[torch.Tensor]) -> torch.Tensor:
    """Gradient over all ranks, as data-parallel training adds it."""
    gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params])
    dist.all_reduce(gradient)
    return gradient


def whole_gradient(loss: torch.Tensor, params: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, params)])


def sequence_loss(new: torch.Tensor) -> torch.Tensor:
    return torch.exp(new.sum() / 7)


def partial_through_gather(samples: list[Any], micro_batches: list[list[int]], cp: ContextParallel) -> float:
    """Several micro-batches, each with its own backward, of a loss that needs whole sequences."""
    params = oracle.parameters()
    weights = sample_weights(
        "rollout_mean", [s.mask.sum() for s in samples], rollout_ids=[s.rollout_id for s in samples]
    )
    whole = sum(
        weights[i] * s.mask.sum() * sequence_loss(oracle.response_log_probs(params, s)) for i, s in enumerate(samples)
    )
    expected = whole_gradient(whole, params)
    for members in micro_batches:
        batch = pack([samples[i] for i in members], cp)
        new = local_log_probs(params, batch)
        gathered = gather_responses(new, batch, gradient="partial")
        spread = torch.stack([*map(sequence_loss, gathered), weights.new_zeros(())])[batch.sample_index]
        weighted_sum(spread + 0 * new, batch.mask, weights[members], batch.sample_index).backward()
    return (summed_gradient(params) - expected).abs().max().item()


def partial_through_sums(samples: list[Any], cp: ContextParallel) -> float:
    params = oracle.parameters()
    whole = sum(torch.exp((oracle.response_log_probs(params, s) * s.mask).sum() / 7) * s.mask.sum() for s in samples)
    expected = whole_gradient(whole, params)
    batch = pack(samples, cp)
    new = local_log_probs(params, batch)
    sums = sample_sums(new, batch.mask, batch.sample_index, batch.num_samples, cp=cp, gradient="partial")
    spread = torch.exp(sums / 7)[batch.sample_index]
    weighted_sum(spread, batch.mask, torch.ones_like(sums), batch.sample_index).backward()
    return (summed_gradient(params) - expected).abs().max().item()


def replicated(samples: list[Any], cp: ContextParallel) -> float:
    params = oracle.parameters()
    whole = sum((oracle.response_log_probs(params, s) ** 2).sum() for s in samples)
    expected = whole_gradient(whole, params)
    batch = pack(samples, cp)
    gathered = gather_responses(local_log_probs(params, batch), batch, gradient="replicated")
    sum((x**2).sum() for x in gathered).backward()
    return (summed_gradient(params) - expected).abs().max().item()


def ranks_with_nothing(cp: ContextParallel) -> float:
    """The response lives on one rank; the others hold no token of it, and one of them not even a graph."""
    x = torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64)
    mine = cp.slice_response(x, 40, 3)
    leaf = mine.clone().requires_grad_() if len(mine) else mine
    gathered = cp.gather_response(leaf, 40, 3, gradient="partial")
    ((cp.rank + 1) * (gathered**2).sum()).backward()
    factor = cp.size * (cp.size + 1) / 2
    error = (gathered.detach() - x).abs().max()
    if len(mine):
        error = torch.maximum(error, (leaf.grad - 2 * factor * mine).abs().max())
    return error.item()


def replicated_sums(samples: list[Any], cp: ContextParallel) -> float:
    params = oracle.parameters()
    whole = sum((oracle.response_log_probs(params, s) * s.mask).sum() ** 2 for s in samples)
    expected = whole_gradient(whole, params)
    batch = pack(samples, cp)
    new = local_log_probs(params, batch)
    sums = sample_sums(new, batch.mask, batch.sample_index, batch.num_samples, cp=cp, gradient="replicated")
    (sums**2).sum().backward()
    return (summed_gradient(params) - expected).abs().max().item()


def tokens(samples: list[Any], cp: ContextParallel) -> float:
    """Values at all tokens, with the gradient of partial losses."""
    params = oracle.parameters()
    expected = whole_gradient(sum(params[0][s.tokens].sum(1).exp().sum() ** 2 for s in samples), params[:1])
    batch = pack(samples, cp)
    gathered = gather_tokens(params[0][batch.tokens[0]].sum(1).exp(), batch, gradient="partial")
    (torch.stack([x.sum() ** 2 for x in gathered]).sum() / cp.size).backward()
    return (summed_gradient(params[:1]) - expected).abs().max().item()


def rank_without_responses(cp: ContextParallel) -> float:
    """``torch.autograd.grad`` prunes what does not reach its inputs: a rank that scores nothing must not be pruned."""
    params = oracle.parameters()
    sample = max(oracle.random_samples(1, 40), key=lambda s: len(s.tokens) - 2 * s.response_length)
    batch = pack([sample], cp)
    new = local_log_probs(params, batch)
    loss = torch.stack([x.sum() ** 2 for x in gather_responses(new, batch, gradient="partial")]).sum()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss / cp.size, params)])
    dist.all_reduce(gradient)
    expected = whole_gradient(oracle.response_log_probs(params, sample).sum() ** 2, params)
    return (gradient - expected).abs().max().item()


def filler_sums(cp: ContextParallel) -> list[int]:
    """A sequence-level loss of no sequences: the collective is empty, and backward still runs."""
    batch = pack([], cp)
    values = torch.ones(batch.local_length, requires_grad=True)
    sums = sample_sums(values, batch.mask, batch.sample_index, 0, cp=cp, gradient="partial")
    weighted_sum(to_tokens(sums, batch.sample_index), batch.mask, sums.detach(), batch.sample_index).backward()
    return list(sums.shape)


def collectives_of_one_gather(batch: PackedMicroBatch) -> dict[str, int]:
    """Collectives of forward and backward for a whole micro-batch."""
    COLLECTIVES.clear()
    gathered = gather_responses(local_log_probs(oracle.parameters(), batch), batch, gradient="partial")
    forward = dict(COLLECTIVES)
    torch.cat(gathered).sum().backward()
    return {"forward": sum(forward.values()), "backward": sum(COLLECTIVES.values()) - sum(forward.values())}


def wrong_group_size(cp: ContextParallel) -> str:
    try:
        ContextParallel(rank=0, size=cp.size + 1, group=cp.group)
    except ValueError as error:
        return str(error)
    return ""


def cases(layout: str) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    cp = ContextParallel(rank=rank, size=size, layout=layout, group=dist.group.WORLD)
    samples = oracle.random_samples(7, 6)
    column = pack(samples, cp)
    frozen = gather_responses(local_log_probs(oracle.parameters(), column), column, gradient="none")
    booleans = gather_responses(column.mask.bool(), column, gradient="none")
    return {
        "partial": partial_through_gather(samples, [[0, 3, 5], [], [1], [4, 2]], cp),
        "sums": partial_through_sums(samples, cp),
        "replicated": replicated(samples, cp),
        "replicated_sums": replicated_sums(samples, cp),
        "tokens": tokens(samples, cp),
        "nothing": ranks_with_nothing(cp),
        "graph": any(x.requires_grad for x in frozen),
        "collectives": collectives_of_one_gather(column),
        "empty": rank_without_responses(cp),
        "filler": filler_sums(cp),
        "masks": all(torch.equal(x, s.mask.bool()) for x, s in zip(booleans, samples, strict=True)),
        "wrong_group": wrong_group_size(cp),
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    for name in ("all_reduce", "all_gather"):
        count_collectives(name)
    Path(os.environ["RESULT"]).write_text(json.dumps({layout: cases(layout) for layout in ("zigzag", "contiguous")}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
