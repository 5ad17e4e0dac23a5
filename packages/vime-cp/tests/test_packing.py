"""Packed micro-batches: what stands at each place, and that all ranks of a layout agree on the shapes."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import (
    ContextParallel,
    PackedMicroBatch,
    pack_micro_batch,
    pack_response,
    pack_routed_experts,
    pack_tokens,
    packed_length,
    unpack_response,
)

if TYPE_CHECKING:
    from types import ModuleType

LAYOUTS = ["zigzag", "contiguous"]
geometries = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "count": st.integers(0, 6),
        "size": st.sampled_from([1, 2, 3, 4, 8]),
        "layout": st.sampled_from(LAYOUTS),
        "align": st.integers(1, 3),
        "pad_multiple": st.sampled_from([1, 2, 3, 8]),
    }
)


def pack_all_ranks(oracle: ModuleType, geometry: dict[str, Any]) -> tuple[list[Any], list[PackedMicroBatch]]:
    samples = oracle.random_samples(geometry["seed"], geometry["count"])
    cps = [
        ContextParallel(rank=r, size=geometry["size"], layout=geometry["layout"], sequence_align=geometry["align"])
        for r in range(geometry["size"])
    ]
    return samples, [pack(samples, cp, pad_multiple=geometry["pad_multiple"]) for cp in cps]


def pack(samples: list[Any], cp: ContextParallel, **options: Any) -> PackedMicroBatch:
    return pack_micro_batch(
        [s.tokens for s in samples], [s.response_length for s in samples], [s.mask for s in samples], cp=cp, **options
    )


def expected_places(oracle: ModuleType, samples: list[Any], geometry: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """(sample, position) at each place of each rank, by cutting lists; sample -1 in the trailing padding."""
    size, align, multiple = geometry["size"], geometry["align"], geometry["pad_multiple"]
    lengths = [len(s.tokens) for s in samples]
    if geometry["layout"] == "contiguous" or size == 1:
        stream = [(i, p) for i, t in enumerate(lengths) for p in oracle.held_positions(t, 1, "contiguous", align)[0]]
        trailing = 0
        while not stream or len(stream) % (size * multiple):
            stream.append((-1, trailing))
            trailing += 1
        local = len(stream) // size
        return [stream[r * local : (r + 1) * local] for r in range(size)]
    ranks: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    for i, t in enumerate(lengths):
        for rank, positions in enumerate(oracle.held_positions(t, size, "zigzag", align)):
            ranks[rank] += [(i, p) for p in positions]
    length = len(ranks[0])
    trailing = 0 if length else 2
    while (length + trailing) % multiple or trailing % 2:
        trailing += 1
    for rank, positions in enumerate(oracle.held_positions(trailing * size, size, "zigzag")):
        ranks[rank] += [(-1, p) for p in positions]
    return ranks


@given(geometry=geometries)
def test_every_place_holds_what_cutting_lists_puts_there(oracle: ModuleType, geometry: dict[str, Any]) -> None:
    samples, batches = pack_all_ranks(oracle, geometry)
    for batch, places in zip(batches, expected_places(oracle, samples, geometry), strict=True):
        assert batch.local_length == len(places)
        assert batch.position_ids[0].tolist() == [p for _, p in places]
        for place, (i, p) in enumerate(places):
            sample = samples[i] if i >= 0 and p < len(samples[i].tokens) else None
            if sample is None:
                assert batch.sample_index[place] == -1
                assert (batch.tokens[0, place], batch.labels[place], batch.mask[place]) == (0, 0, 0)
                continue
            assert batch.sample_index[place] == i
            assert batch.tokens[0, place] == sample.tokens[p]
            assert batch.labels[place] == (sample.tokens[p + 1] if p + 1 < len(sample.tokens) else 0)
            r = p + 1 - (len(sample.tokens) - sample.response_length)
            assert batch.mask[place] == (sample.mask[r] if 0 <= r < sample.response_length else 0)


@given(geometry=geometries)
def test_ranks_agree_on_shapes_and_boundaries(oracle: ModuleType, geometry: dict[str, Any]) -> None:
    samples, batches = pack_all_ranks(oracle, geometry)
    first, size = batches[0], geometry["size"]
    starts = first.cu_seqlens.tolist()
    for batch in batches:
        assert batch.tokens.shape == first.tokens.shape
        assert batch.cu_seqlens.tolist() == starts
    assert first.local_length == packed_length(
        [len(s.tokens) for s in samples], cp=first.cp, pad_multiple=geometry["pad_multiple"]
    )
    assert first.local_length % geometry["pad_multiple"] == 0
    assert first.cu_seqlens.dtype == torch.int32
    assert starts[-1] == first.local_length * size
    assert all(a < b for a, b in pairwise(starts))
    assert first.max_seqlen == max(b - a for a, b in pairwise(starts))
    assert len(starts) - 1 in {len(samples), len(samples) + 1}
    if geometry["layout"] == "zigzag" and size > 1:
        aligned = 2 * size * geometry["align"]
        assert all(start % aligned == 0 for start in starts[: len(samples) + 1])
        assert all((b - a) % (2 * size) == 0 for a, b in pairwise(starts))


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    size=st.sampled_from([1, 2, 3, 4, 8]),
    align=st.integers(1, 4),
    multiple=st.sampled_from([1, 2, 4, 128]),
)
def test_a_rank_holds_what_a_planner_counts(lengths: list[int], size: int, align: int, multiple: int) -> None:
    """Zigzag: sum of ``2 * ceil(T / (2 * cp * a)) * a``, rounded up; contiguous: the stream rounded up and cut."""
    shares = [2 * -(-t // (2 * size * align)) * align if size > 1 else -(-t // align) * align for t in lengths]
    zigzag = ContextParallel(size=size, sequence_align=align)
    assert packed_length(lengths, cp=zigzag, pad_multiple=multiple) == -(-sum(shares) // multiple) * multiple
    stream = sum(-(-t // align) * align for t in lengths)
    contiguous = ContextParallel(size=size, layout="contiguous", sequence_align=align)
    expected = -(-stream // (size * multiple)) * multiple
    assert packed_length(lengths, cp=contiguous, pad_multiple=multiple) == expected


def test_a_micro_batch_moves_with_all_its_tensors() -> None:
    batch = pack_micro_batch([torch.arange(5)], [2], cp=ContextParallel(rank=1, size=2))
    moved = batch.to("meta")
    for part in (moved, moved.responses):
        content = [getattr(part, field.name) for field in dataclasses.fields(part)]
        devices = {x.device.type for x in content if isinstance(x, torch.Tensor)}
        assert devices == {"meta"}
    assert (moved.total_lengths, moved.cp, moved.responses.counts) == ((5,), batch.cp, batch.responses.counts)


@given(geometry=geometries)
def test_a_column_enters_whole_and_every_entry_is_found_once(oracle: ModuleType, geometry: dict[str, Any]) -> None:
    samples, batches = pack_all_ranks(oracle, geometry)
    ids = torch.arange(1, 1 + sum(s.response_length for s in samples), dtype=torch.float64)
    column = list(torch.split(ids, [s.response_length for s in samples]))
    found: list[list[float]] = [[] for _ in samples]
    for batch in batches:
        local = pack_response(column, batch)
        pieces = unpack_response(local, batch)
        assert len(pieces) == len(samples)
        assert sum(piece.sum().item() for piece in pieces) == local.sum()
        for i, piece in enumerate(pieces):
            found[i] += piece.tolist()
    for i, sample in enumerate(samples):
        unscored = 1 if sample.response_length == len(sample.tokens) else 0
        assert sorted(found[i]) == column[i][unscored:].tolist()


def test_a_column_may_have_more_dimensions_and_integer_type() -> None:
    batch = pack_micro_batch([torch.arange(4)], [2], cp=ContextParallel(rank=1, size=2))
    column = torch.tensor([[1, 2], [3, 4]])
    assert pack_response([column], batch, fill=-1).tolist() == [[1, 2], [3, 4]]
    assert pack_tokens([torch.arange(8).view(4, 2)], batch).tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slime_1860_an_empty_micro_batch_is_a_filler_of_legal_shape(size: int, layout: str) -> None:
    cp = ContextParallel(rank=size - 1, size=size, layout=layout)
    filler = pack_micro_batch([], [], [], cp=cp, pad_multiple=4)
    assert filler.tokens.shape == (1, 4)
    assert filler.num_samples == 0
    assert filler.cu_seqlens.tolist() == [0, 4 * size]
    assert filler.mask.tolist() == [0, 0, 0, 0]
    assert filler.sample_index.tolist() == [-1] * 4
    assert pack_response([], filler).tolist() == [0, 0, 0, 0]
    assert unpack_response(torch.zeros(4), filler) == []


def test_a_fp64_mask_stays_fp64_and_an_integer_mask_becomes_float() -> None:
    tokens = [torch.arange(3)]
    assert pack_micro_batch(tokens, [2], [torch.ones(2, dtype=torch.float64)]).mask.dtype == torch.float64
    assert pack_micro_batch(tokens, [2], [torch.ones(2, dtype=torch.bool)]).mask.dtype == torch.float32


def test_miles_3219_a_model_internal_mask_stands_at_inputs_not_at_logits() -> None:
    batch = pack_micro_batch([torch.arange(5)], [2], [torch.ones(2)])
    assert batch.mask.tolist() == [0, 0, 1, 1, 0]
    assert pack_tokens([torch.tensor([0.0, 0, 0, 1, 1])], batch).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slime_2175_routed_experts_are_cut_as_the_tokens_are(layout: str) -> None:
    """Reported: experts were cut zigzag while the tokens lay contiguous."""
    lengths = [7, 1, 4]
    tokens = [torch.arange(10 * i + 1, 10 * i + 1 + n) for i, n in enumerate(lengths)]
    experts = [sample[:-1, None, None].expand(-1, 3, 2).contiguous() for sample in tokens]
    for rank in range(2):
        cp = ContextParallel(rank=rank, size=2, layout=layout)
        batch = pack_micro_batch(tokens, [1, 0, 2], cp=cp)
        placed = pack_routed_experts(experts, batch, num_layers=3, topk=2, num_experts=64)
        lasts = {sample[-1].item() for sample in tokens}
        for token, rows in zip(batch.tokens[0].tolist(), placed.tolist(), strict=True):
            if token == 0 or token in lasts:
                assert all(len(set(row)) == 2 and max(row) < 64 for row in rows)
            else:
                assert rows == [[token, token]] * 3


def test_experts_of_padding_are_spread_evenly_also_in_a_filler() -> None:
    filler = pack_micro_batch([], [], pad_multiple=8)
    placed = pack_routed_experts([], filler, num_layers=2, topk=2, num_experts=4)
    assert placed.shape == (8, 2, 2)
    assert torch.bincount(placed.flatten()).tolist() == [8, 8, 8, 8]


def test_labels_are_shifted_before_the_stream_is_cut() -> None:
    tokens = torch.arange(100, 116)
    for layout in LAYOUTS:
        for rank in range(2):
            batch = pack_micro_batch([tokens], [8], cp=ContextParallel(rank=rank, size=2, layout=layout))
            for token, label in zip(batch.tokens[0].tolist(), batch.labels.tolist(), strict=True):
                assert label == (token + 1 if token < 115 else 0)
