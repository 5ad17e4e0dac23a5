"""How much memory a trainer rank and an engine would take, item by item.

Always true: parameters are counted from the model's weights, by the stage that holds them; activations and logits from
the tokens of the plan's largest micro-batch; the rank that is told is the one that takes most. `docs/memory.md` sets
the sum against measured peaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from vime_schedule import TokenBudget

if TYPE_CHECKING:
    from vime_schedule import Schedule
    from vime_train.config import LayoutSection, RunConfig

Shapes = Mapping[str, tuple[int, ...]]
FP32_BYTES = 4
MOMENTS = 2
PROCESS_GIB = 0.5
"""Python, torch, Megatron and Ray's worker before there is a model; measured on a CPU."""
ENGINE_PROCESS_GIB = 1.2
"""vLLM's process before there is a model; measured on a CPU."""
EXPORT_BYTES = 4 * 2**30
"""At most so much of the whole model is in the hands of rank 0 while it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Bytes of one kind, and what they are."""

    name: str
    count: float
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One rank of a pipeline stage: which weights it holds, those of experts apart, and micro-batches under way."""

    dense: float
    experts: float
    layers: int
    under_way: float
    has_head: bool

    @property
    def parameters(self) -> float:
        """All that it holds."""
        return self.dense + self.experts


def trainer_memory(
    config: RunConfig, weights: Shapes, model: Mapping[str, Any], schedule: Schedule, *, teacher: Shapes | None = None
) -> list[Item]:
    """The items of the rank that takes most; `model` is the content of the model's `config.json`."""
    tokens = largest_micro_batch(config, schedule)
    micro_batches = max(step.num_micro_batches for step in schedule.steps)
    stages = _stages(config, weights, model, micro_batches)
    return max((list(_items(config, stage, weights, model, tokens, teacher)) for stage in stages), key=total)


def engine_memory(config: RunConfig, weights: Shapes) -> list[Item]:
    """The items of one engine on a CPU; on a GPU vLLM takes the share that `vllm.gpu_memory_utilization` says."""
    size = FP32_BYTES if config.engine.dtype == "float32" else 2
    parts = config.engine.tensor_parallel_size
    processes = 1 if parts == 1 else parts + 1  # one that asks, and those that hold the parts
    return [
        Item(name="weights", count=_parameters(weights) * size, meaning=f"the whole model in {config.engine.dtype}"),
        Item(name="KV cache", count=parts * config.engine.kv_cache_gib * 2.0**30, meaning="engine.kv_cache_gib"),
        Item(
            name="processes",
            count=processes * ENGINE_PROCESS_GIB * 2**30,
            meaning=f"{processes} with Python, torch and vLLM, as measured on a CPU",
        ),
    ]


def total(items: Sequence[Item]) -> float:
    """All bytes together."""
    return sum(item.count for item in items)


def largest_micro_batch(config: RunConfig, schedule: Schedule) -> int:
    """Tokens that a rank holds of the plan's largest micro-batch, padding included."""
    batching = config.batching
    budget = TokenBudget(
        max_tokens_per_gpu=batching.max_tokens_per_gpu,
        sequence_align=batching.sequence_align,
        pack_align=batching.pack_align,
    )
    return max(
        budget.gpu_tokens([schedule.total_lengths[position] for position in members], config.layout.cp)
        for step in schedule.steps
        for rank in step.micro_batches
        for members in rank
        if members
    )


def _stages(config: RunConfig, weights: Shapes, model: Mapping[str, Any], micro_batches: int) -> Iterator[_Stage]:
    """The first and the last stage: one has most micro-batches under way, the other the logits."""
    layout, layers = config.layout, int(model["num_hidden_layers"])
    cut = {
        name: prod(shape) / (layout.tp if len(shape) > 1 else 1)
        for name, shape in weights.items()
        if ".experts." not in name
    }
    experts = sum(prod(shape) for name, shape in weights.items() if ".experts." in name) / layout.ep / layout.pp
    within = sum(count for name, count in cut.items() if ".layers." in name) / layout.pp
    embedding = sum(count for name, count in cut.items() if "embed_tokens" in name)
    head = sum(cut.values()) - within * layout.pp - embedding
    ends = ((0, embedding + head),) if layout.pp == 1 else ((0, embedding), (layout.pp - 1, head or embedding))
    for rank, outside in ends:
        yield _Stage(
            dense=within + outside,
            experts=experts,
            layers=layers // layout.pp,
            under_way=_under_way(config.layout, rank, micro_batches),
            has_head=rank == layout.pp - 1,
        )


def _under_way(layout: LayoutSection, rank: int, micro_batches: int) -> float:
    """Micro-batches whose activations a stage keeps at once, under 1F1B or the interleaved schedule of Megatron."""
    later = layout.pp - 1 - rank
    if layout.vpp == 1:
        return min(micro_batches, later + 1)
    group = layout.microbatch_group_size_per_vp_stage or layout.pp
    chunks = min(micro_batches * layout.vpp, 2 * later + (layout.vpp - 1) * group + 1)
    return chunks / layout.vpp


def _items(
    config: RunConfig, stage: _Stage, weights: Shapes, model: Mapping[str, Any], tokens: int, teacher: Shapes | None
) -> Iterator[Item]:
    layout = config.layout
    half = bool(config.megatron.get("bf16"))
    size, shards = 2 if half else FP32_BYTES, layout.dp * layout.cp
    held = stage.parameters
    yield Item(name="weights", count=held * size, meaning=f"{held:,.0f} parameters of its stage and TP share")
    yield Item(name="gradients", count=held * FP32_BYTES, meaning="one fp32 number per parameter")
    adam, expert_shards = MOMENTS + half, max(1.0, shards * layout.tp / layout.ep)
    yield Item(
        name="Adam",
        count=adam * FP32_BYTES * (stage.dense / shards + stage.experts / expert_shards),
        meaning=f"{adam} fp32 numbers per parameter, cut over dp x cp = {shards} ranks"
        + (f", those of experts over {expert_shards:g}" if stage.experts else ""),
    )
    per_token = activation_numbers(config, model) * stage.layers + 2 * _stream(model)
    yield Item(
        name="activations",
        count=tokens * per_token * size * stage.under_way,
        meaning=f"{tokens} tokens x {stage.layers} layers, kept for backward"
        + (f"; {stage.under_way:g} micro-batches under way" if stage.under_way > 1 else ""),
    )
    if stage.has_head:
        numbers = tokens * int(model["vocab_size"]) / layout.tp
        yield Item(name="logits", count=2 * numbers * size, meaning="tokens x vocabulary, and their gradient")
    yield from _other_models(config, held, weights, teacher, size)
    yield Item(
        name="exchange",
        count=max(held * FP32_BYTES if shards > 1 else 0.0, min(_parameters(weights) * size, EXPORT_BYTES)),
        meaning="gradients on their way between ranks, or the whole model while it is written",
    )
    if not config.on_gpus:
        yield Item(name="process", count=PROCESS_GIB * 2**30, meaning="Python, torch and Megatron, as measured")


def _other_models(config: RunConfig, held: float, weights: Shapes, teacher: Shapes | None, size: int) -> Iterator[Item]:
    algorithm, shards = config.algorithm, config.layout.dp * config.layout.cp
    place = "in host memory between passes" if config.on_gpus else "weights alone"
    if algorithm.needs_reference:
        yield Item(name="reference", count=held * size, meaning=place)
    if algorithm.distillation.coefficient > 0 and teacher is not None and not algorithm.distillation.engines:
        count = held * _parameters(teacher) / _parameters(weights)
        yield Item(name="teacher", count=count * size, meaning=place)
    if algorithm.has_critic:
        count = held * (size + FP32_BYTES + FP32_BYTES * MOMENTS / shards)
        yield Item(name="critic", count=count, meaning="weights, gradients and Adam of the policy's layers again")


def activation_numbers(config: RunConfig, model: Mapping[str, Any]) -> float:
    """Numbers that one of Megatron's local layers keeps of a token until its backward pass, on one TP rank.

    Counted from what autograd saves (a test counts again). Each of the two norms keeps its input, the normalised input
    and its output, and the stream is kept once more; attention keeps the joint projection, queries and keys normalised
    and rotated, all three as they enter the kernel, and its output twice; the MLP both projections, the gate before and
    after its function, and the product. Of experts, evenly chosen, it is so for each that a token goes through, with
    the token's copy there and back, and the router's scores. Under CP the kernel sees the keys and values of all ranks.
    Transformer Engine's layers on a GPU keep less.
    """
    hidden, tp, cp = _stream(model), config.layout.tp, config.layout.cp
    heads = int(model["num_attention_heads"])
    dim = int(model.get("head_dim") or hidden // heads)
    query, key_value = heads * dim / tp, 2 * int(model.get("num_key_value_heads") or heads) * dim / tp
    if config.megatron.get("recompute_granularity") == "full":
        return hidden
    experts = model.get("num_experts") or model.get("num_local_experts")
    if experts:
        mlp = model["num_experts_per_tok"] * (5 * model["moe_intermediate_size"] + 2 * hidden) + 3 * experts
    else:
        mlp = 5 * model["intermediate_size"] / tp
    return float(7 * hidden + 6 * query + (1.5 + cp) * key_value + mlp)


def _stream(model: Mapping[str, Any]) -> int:
    return int(model["hidden_size"])


def _parameters(weights: Shapes) -> int:
    return sum(prod(shape) for shape in weights.values())
