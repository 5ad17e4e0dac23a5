"""Weights between a Hugging Face directory and this rank's model chunks, under any TP, PP, VPP and EP.

Always true: `export_weights` after `load_weights` writes the tensors that were read, bit for bit (in the model's
dtype), in every layout; a directory appears whole under its name or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from vime_train.megatron._exchange import gather_json
from vime_train.megatron._hf_directory import files_by_tensor, read_tensor, write_directory
from vime_train.megatron._hf_mapping import (
    WeightRule,
    expert_of,
    global_name,
    hf_weight_names,
    layer_of,
    weight_rules,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from vime_train.megatron._architecture import Architecture
    from vime_train.megatron._groups import Groups
    from vime_train.megatron._model import ModelChunks


def local_parameters(chunks: ModelChunks) -> dict[str, torch.nn.Parameter]:
    """This rank's parameters by their name in the whole model."""
    return {
        global_name(
            name, first_layer=chunk.decoder.layers[0].layer_number - 1, first_expert=chunks.first_expert
        ): parameter
        for chunk in chunks.bare
        for name, parameter in chunk.named_parameters()
    }


@torch.no_grad()
def load_weights(directory: str, architecture: Architecture, chunks: ModelChunks, groups: Groups) -> None:
    """Fill this rank's chunks; every rank reads only the tensors it needs.

    Raises:
        ValueError: tensors are missing, unknown, or of another shape.
    """
    rules = weight_rules(architecture)
    files = files_by_tensor(Path(directory))
    _check_names(directory, set(files), hf_weight_names(rules), tied=architecture.tied_head)
    for name, parameter in local_parameters(chunks).items():
        rule = rules[name]
        logical = rule.join([read_tensor(files, hf_name) for hf_name in rule.hf_names])
        if tuple(logical.shape) != rule.shape:
            raise ValueError(
                f"load_weights: {rule.hf_names} of {directory} join to {tuple(logical.shape)} but config.json means "
                f"{rule.shape}: the weights are of another model"
            )
        parameter.copy_(rule.shard(logical, groups.tp_rank, groups.layout.tp).reshape(parameter.shape))


def export_weights(
    directory: str, architecture: Architecture, chunks: ModelChunks, groups: Groups, *, like: str
) -> None:
    """Write the whole model as a Hugging Face directory; all ranks call, rank 0 writes, all return when it is there.

    Args:
        directory: where; what stands there is replaced.
        like: a Hugging Face directory whose other files (config, tokenizer) are copied.

    Raises:
        OSError: on rank 0, which could not write; what stood there is untouched.
        RuntimeError: on the other ranks, in that case, with what rank 0 raised.
    """
    weights = _gather(architecture, chunks, groups)
    failure: OSError | None = None
    try:
        if groups.rank == 0:
            write_directory(Path(directory), weights, like=Path(like))
    except OSError as error:
        failure = error
    for _ in weights:  # the other ranks send, and rank 0 receives what it could not write
        pass
    failed = torch.tensor([failure is not None], dtype=torch.int32, device=groups.device)
    dist.all_reduce(failed, op=dist.ReduceOp.MAX)
    if not failed.item():
        return
    texts = gather_json([] if failure is None else [str(failure)], groups)
    if failure is not None:
        raise failure
    raise RuntimeError(f"export_weights: rank 0 could not write {directory}: {texts[0][0]}")


@torch.no_grad()
def _gather(architecture: Architecture, chunks: ModelChunks, groups: Groups) -> Iterator[tuple[str, Tensor]]:
    """Hugging Face tensors one after the other, on global rank 0; other ranks take part and yield nothing of use."""
    if not (groups.is_export_replica or groups.is_expert_replica):
        return
    rules = weight_rules(architecture)
    parameters = local_parameters(chunks)
    if architecture.tied_head:
        del rules["output_layer.weight"]
    owners = _owning_stages(list(rules), parameters, groups)
    for (name, rule), owner in zip(rules.items(), owners, strict=True):
        logical = None
        if groups.pp_rank == owner:
            expert = expert_of(name)
            if expert is not None:
                logical = _expert(name, rule, parameters, expert // chunks.experts_per_rank, groups)
            elif groups.is_export_replica:
                logical = _unshard(rule, parameters[name].detach(), groups)
        if not groups.is_export_replica:
            continue
        if groups.tp_rank == 0 and owner != 0:
            logical = _send_to_first_stage(logical, rule, parameters, owner, groups)
        if groups.rank == 0 and logical is not None:
            yield from zip(rule.hf_names, (x.contiguous().cpu() for x in rule.split(logical)), strict=True)


def _owning_stages(names: list[str], parameters: Mapping[str, Tensor], groups: Groups) -> list[int]:
    """The pipeline stage that holds each parameter; the first one where several do (tied embeddings)."""
    absent = groups.layout.pp
    layers = {layer_of(name) for name in parameters} - {None}  # of an expert, another rank of the stage may hold it
    stages = [groups.pp_rank if name in parameters or layer_of(name) in layers else absent for name in names]
    table = torch.tensor(stages, device=groups.device)
    dist.all_reduce(table, op=dist.ReduceOp.MIN, group=groups.pp)
    return [int(stage) for stage in table.tolist()]


def _unshard(rule: WeightRule, parameter: Tensor, groups: Groups) -> Tensor:
    if groups.layout.tp == 1 or rule.shard_axis is None:
        return rule.unshard([parameter])
    shards = [torch.empty_like(parameter) for _ in range(groups.layout.tp)]
    dist.all_gather(shards, parameter.contiguous(), group=groups.tp)
    return rule.unshard(shards)


def _expert(name: str, rule: WeightRule, parameters: Mapping[str, Tensor], owner: int, groups: Groups) -> Tensor | None:
    """An expert's tensor on the first rank of the first expert group, from the rank `owner` of it."""
    if not groups.is_expert_replica:
        return None
    if groups.ep_rank == owner:
        logical = rule.unshard([parameters[name].detach()])
        if owner == 0:
            return logical
        dist.send(logical.contiguous(), group=groups.ep, group_dst=0)
    elif groups.ep_rank == 0:
        logical = torch.empty(rule.shape, dtype=_dtype(parameters), device=groups.device)
        dist.recv(logical, group=groups.ep, group_src=owner)
        return logical
    return None


def _dtype(parameters: Mapping[str, Tensor]) -> torch.dtype:
    return next(iter(parameters.values())).dtype


def _send_to_first_stage(
    logical: Tensor | None, rule: WeightRule, parameters: Mapping[str, Tensor], owner: int, groups: Groups
) -> Tensor | None:
    if groups.pp_rank == owner and logical is not None:
        dist.send(logical.contiguous(), group=groups.pp, group_dst=0)
    elif groups.pp_rank == 0:
        logical = torch.empty(rule.shape, dtype=_dtype(parameters), device=groups.device)
        dist.recv(logical, group=groups.pp, group_src=owner)
    return logical


def _check_names(directory: str, given: set[str], needed: set[str], *, tied: bool) -> None:
    missing = sorted(needed - given)
    ignored = {"lm_head.weight"} if tied else set()
    unknown = sorted(name for name in given - needed - ignored if not name.endswith("rotary_emb.inv_freq"))
    if missing or unknown:
        raise ValueError(
            f"load_weights: {directory} lacks {missing[:4]} ({len(missing)} tensors) and has {unknown[:4]} "
            f"({len(unknown)} tensors) that the model of its config.json does not: the weights are of another model"
        )
