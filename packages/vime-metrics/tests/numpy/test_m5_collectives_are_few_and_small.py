"""M5: a step costs a fixed small number of collectives however many metrics there are; no pickle crosses the wire."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vime_metrics import (
    Count,
    Histogram,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    Rate,
    SimulatedWorld,
    Std,
    Sum,
    TextCounts,
)
from vime_metrics._reduction import AllGather, AllReduce, Broadcast, GroupMemory, Options, reduction

SCALARS = {
    "Count": Count(3),
    "Last": Last(0.5, step=2),
    "Max": Max(1.0),
    "Mean": Mean(1.0, 2.0),
    "Min": Min(1.0),
    "Rate": Rate(1.0, 2.0),
    "Std": Std.of([1.0, 2.0]),
    "Sum": Sum(1.0),
}
OTHERS = {
    "Histogram": Histogram.of([1.0], edges=[0, 2]),
    "Quantiles": Quantiles.of(np.arange(5000.0)),
    "TextCounts": TextCounts.of(["a", "b"]),
}
TOKEN_BYTES = 32


def everything(times):
    return {f"{kind}/{at}": metric for at in range(times) for kind, metric in (SCALARS | OTHERS).items()}


def steady(size, step):
    """The collectives of the second of two equal steps."""
    world = SimulatedWorld(size)
    for _ in range(2):
        world.all_reduce([step] * size)
    return world.collectives


@pytest.mark.parametrize("times", [1, 10, 100])
def test_a_steady_step_of_all_kinds_costs_three_collectives(times):
    assert [each.kind for each in steady(2, everything(times))] == ["AllReduce"] * 3


@pytest.mark.parametrize(("step", "number"), [({}, 1), ({"a": Mean(1, 1)}, 1), ({"a": Max(1)}, 2), ({"a": Std()}, 2)])
def test_what_no_metric_needs_is_not_sent(step, number):
    assert len(steady(3, step)) == number


@pytest.mark.parametrize("kind", SCALARS)
def test_a_scalar_metric_costs_at_most_24_bytes_whatever_the_number_of_ranks(kind):
    step = {f"metric {at}": SCALARS[kind] for at in range(200)}
    sizes = {sum(each.num_bytes for each in steady(ranks, step)) - TOKEN_BYTES for ranks in (2, 5, 16)}
    assert len(sizes) == 1
    assert sizes.pop() <= 24 * 200


def test_a_small_quantiles_metric_sends_its_values_and_a_large_one_its_buckets():
    few, many = Quantiles.of(np.arange(100.0)), Quantiles.of(np.arange(1e6))
    assert sum(each.num_bytes for each in steady(2, {"q": few})) < 8 * 2 * 100 + 100
    assert sum(each.num_bytes for each in steady(2, {"q": many})) < 8 * 2700


def requests_of(steps, memories, options=None):
    """Run real generators in lockstep, and keep every request of rank 0."""
    options = options or Options.of(group_dst=None, strict=False, nonfinite="keep", replicas=1)
    ranks = [reduction(step, memory, options) for step, memory in zip(steps, memories, strict=True)]
    sent, replies = [], [None] * len(ranks)
    while True:
        requests = []
        for rank, reply in zip(ranks, replies, strict=True):
            try:
                requests.append(rank.send(reply))
            except StopIteration:
                continue
        if not requests:
            return sent
        sent.append(requests)
        buffers = [request.buffer for request in requests]
        match requests[0]:
            case AllReduce(op=op):
                replies = [np.sum(buffers, axis=0) if op == "sum" else np.max(buffers, axis=0)] * len(ranks)
            case AllGather():
                replies = [np.stack(buffers)] * len(ranks)
            case Broadcast(src=src):
                replies = [buffers[src]] * len(ranks)


def test_names_travel_once_as_json_and_never_again():
    memories = [GroupMemory(rank=rank, ranks=2) for rank in range(2)]
    step = {"a secret name": Mean(1.0, 2.0)}
    first, second = requests_of([step, step], memories), requests_of([step, step], memories)
    broadcasts = [requests[0].buffer.tobytes() for requests in first if isinstance(requests[0], Broadcast)]
    assert len(broadcasts) == 1
    assert json.loads(broadcasts[0])[2] == [["a secret name", "Mean", [], 1]]
    assert all(isinstance(requests[0], AllReduce) for requests in second)
    assert not any(b"secret" in request.buffer.tobytes() for requests in second for request in requests)


def test_every_rank_asks_for_the_same_collectives():
    steps = [everything(2), {}, {"Sum/0": Sum(1)}, everything(1)]
    memories = [GroupMemory(rank=rank, ranks=4) for rank in range(4)]
    for _ in range(2):
        for requests in requests_of(steps, memories):
            assert len({(type(each), each.buffer.size, each.buffer.dtype) for each in requests}) == 1


def kinds_after(world, steps):
    world.all_reduce(steps)
    return [each.kind for each in world.collectives]


def test_steps_that_alternate_are_foreseen():
    world = SimulatedWorld(2)
    train, rollout = everything(1), {"reward": Mean(1, 1), "length": Quantiles.of([1.0])}
    for _ in range(2):
        world.all_reduce([train] * 2)
        world.all_reduce([rollout] * 2)
    assert kinds_after(world, [train] * 2) == ["AllReduce"] * 3
    assert kinds_after(world, [rollout] * 2) == ["AllReduce"] * 3


def test_a_known_combination_that_was_not_foreseen_sends_no_name():
    world = SimulatedWorld(2)
    first, second = {"a": Mean(1, 1)}, {"b": Mean(1, 1)}
    for step in (first, second, second):
        world.all_reduce([step] * 2)
    assert kinds_after(world, [first] * 2) == ["AllReduce"] * 2


def test_a_new_combination_of_known_schemas_sends_no_name():
    world = SimulatedWorld(2)
    one, other = {"a": Mean(1, 1)}, {"b": Mean(2, 1)}
    world.all_reduce([one, other])
    assert kinds_after(world, [other, one]) == ["AllReduce", "AllGather", "AllReduce"]
    assert world.all_reduce([one, {}])[0] == {"a": 1.0}


def test_the_order_of_a_dictionary_changes_nothing():
    world = SimulatedWorld(2)
    step = everything(3)
    backwards = dict(reversed(step.items()))
    expected = world.all_reduce([step, step])
    assert world.all_reduce([step, backwards]) == expected
    assert world.all_reduce([backwards, step]) == expected
    assert [each.kind for each in world.collectives] == ["AllReduce"] * 3


def test_memory_of_schemas_is_bounded():
    world = SimulatedWorld(1)
    for at in range(300):
        assert world.all_reduce([{f"metric {at}": Sum(at)}]) == [{f"metric {at}": float(at)}]
    assert world.all_reduce([{"metric 0": Sum(5)}]) == [{"metric 0": 5.0}]
    memory = world._memories[0]
    assert max(len(memory._plans), len(memory._schemas), len(memory._follower)) <= 257


def test_memory_of_orders_is_bounded():
    world, step = SimulatedWorld(1), [(f"metric {at}", Sum(at)) for at in range(100)]
    for at in range(100):
        assert world.all_reduce([dict(step[at:] + step[:at])])[0]["metric 7"] == 7.0
    memory = world._memories[0]
    assert max(len(plan._pickers) for plan in memory._plans.values()) <= 32
    assert len(memory._schemas) == 1


def test_a_schema_error_leaves_the_world_usable():
    world = SimulatedWorld(2)
    with pytest.raises(ValueError, match="'a' is Mean on rank 0 but Sum on rank 1"):
        world.all_reduce([{"a": Mean(1, 1)}, {"a": Sum(1)}])
    assert world.all_reduce([{"a": Sum(1)}] * 2)[1] == {"a": 2.0}
