"""The parts of the planner beside slow, obvious versions of themselves."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule._planner._bounds import lockstep_bound, step_bound
from vime_schedule._planner._deal import deal, sort_rows, swap_bins
from vime_schedule._planner._exchange import Exchange
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items, sort_items
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._pack import pack_rows
from vime_schedule._planner._peel import FreeItems, first_fit_decreasing, peel_rows
from vime_schedule._planner._repartition import divide_in_two

CAPACITY = 100


@st.composite
def item_lists(draw: st.DrawFn, *, monotone: bool = False) -> Items:
    loads = draw(st.lists(st.integers(1, 130), min_size=1, max_size=40))
    if monotone:
        costs = [load * (20 + load) for load in loads]
    else:
        costs = draw(st.lists(st.integers(1, 9000), min_size=len(loads), max_size=len(loads)))
    return sort_items(range(len(loads)), loads, costs, CAPACITY)


def grid_of(items: Items, dp: int, rows: int) -> Grid | None:
    return pack_rows(items, dp, rows, CAPACITY, lockstep_bound(items, dp, rows, CAPACITY))


def check(grid: Grid, items: Items) -> None:
    """Every item once, sums right, no empty bin, no bin above the capacity but one oversize item."""
    assert sorted(chain.from_iterable(grid.bins)) == list(range(len(items)))
    for held, used, cost in zip(grid.bins, grid.used, grid.costs, strict=True):
        assert held
        assert used == sum(items.loads[item] for item in held)
        assert cost == sum(items.costs[item] for item in held)
        assert used <= CAPACITY or len(held) == 1


@given(item_lists())
def test_items_are_dearest_first_after_the_oversize_ones(items: Items) -> None:
    keys = [(load <= CAPACITY, -cost) for load, cost in zip(items.loads, items.costs, strict=True)]
    if not items.is_monotone:
        assert keys == sorted(keys)
    assert items.count_above(50) == sum(load > 50 for load in items.loads)


def obvious_lpt(items: Items, num_bins: int) -> list[list[int]] | None:
    bins = [[item] for item in range(num_bins)]
    for item in range(num_bins, len(items)):
        room = [b for b in range(num_bins) if sum(items.loads[i] for i in (*bins[b], item)) <= CAPACITY]
        if not room:
            return None
        bins[min(room, key=lambda b: (sum(items.costs[i] for i in bins[b]), b))].append(item)
    return bins


@given(item_lists(), st.integers(1, 8))
def test_lpt_gives_each_item_to_the_cheapest_bin_with_room(items: Items, num_bins: int) -> None:
    grid = fill_cheapest(items, range(len(items)), 1, num_bins, CAPACITY)
    wanted = obvious_lpt(items, num_bins) if num_bins <= len(items) else None
    assert (grid.bins if grid else None) == wanted
    if grid:
        check(grid, items)


def obvious_first_fit(items: Items, num_bins: int) -> list[list[int]] | None:
    """First-fit decreasing that leaves one sample for every later bin."""
    free = sorted(range(len(items)), key=lambda item: -items.loads[item])
    bins: list[list[int]] = []
    while free and len(bins) < num_bins:
        keep = num_bins - len(bins) - 1
        bins.append([free.pop(0)])
        for item in list(free):
            if len(free) > keep and sum(items.loads[i] for i in (*bins[-1], item)) <= CAPACITY:
                bins[-1].append(item)
                free.remove(item)
    return None if free else bins


@given(item_lists(), st.integers(1, 20))
def test_first_fit_decreasing(items: Items, num_bins: int) -> None:
    grid = first_fit_decreasing(items, range(len(items)), 1, num_bins, CAPACITY)
    wanted = obvious_first_fit(items, num_bins) if num_bins <= len(items) else None
    if wanted is None:
        assert grid is None
    else:
        assert grid is not None
        check(grid, items)
        assert [sorted(items.loads[i] for i in held) for held in grid.bins] == [
            sorted(items.loads[i] for i in held) for held in wanted
        ]


@given(item_lists(monotone=True), st.integers(1, 4), st.integers(1, 4))
def test_a_peeled_row_stays_below_its_first_sample(items: Items, dp: int, rows: int) -> None:
    if len(items) < dp * rows:
        return
    peeled = peel_rows(FreeItems(items.loads, items.costs), dp, rows, CAPACITY)
    assert len(peeled) < rows
    taken = [item for row in peeled for held in row for item in held]
    assert len(taken) == len(set(taken))
    assert len(items) - len(taken) >= dp * (rows - len(peeled))
    for row in peeled:
        height = max(items.costs[item] for held in row for item in held)
        assert all(sum(items.costs[item] for item in held) <= height for held in row)
        assert all(sum(items.loads[item] for item in held) <= CAPACITY or len(held) == 1 for held in row)


@given(item_lists(), st.integers(1, 4), st.integers(1, 5))
def test_packed_rows_hold_everything(items: Items, dp: int, rows: int) -> None:
    grid = grid_of(items, dp, rows)
    if grid is None:
        assert len(items) < dp * rows or obvious_first_fit(items, dp * rows) is None
        return
    assert grid.num_rows == rows
    check(grid, items)
    assert lockstep_bound(items, dp, rows, CAPACITY) <= grid.lockstep() + 1e-6


@given(item_lists(), st.integers(2, 4), st.integers(1, 5), st.booleans())
def test_exchanges_lower_the_dearest_group_and_break_nothing(items: Items, dp: int, rows: int, capped: bool) -> None:
    grid = grid_of(items, dp, rows)
    if grid is None:
        return
    grid = deal(grid)
    ceilings = [cost for cost in grid.row_maxima() for _ in range(dp)] if capped else None
    before = grid.copy()
    ranks = [range(rank, len(grid.bins), dp) for rank in range(dp)]
    moves = Exchange(grid, items, ranks, capacity=CAPACITY, tries=3, ceilings=ceilings).run(0, max_moves=30)
    check(grid, items)
    assert moves <= 30
    assert max(grid.rank_costs()) <= max(before.rank_costs())
    if moves == 0:
        assert grid == before
    if ceilings:
        assert all(cost <= most for cost, most in zip(grid.costs, ceilings, strict=True))


@given(item_lists(), st.integers(2, 4), st.integers(2, 5))
def test_dealing_keeps_rows_and_swapping_helps(items: Items, dp: int, rows: int) -> None:
    grid = grid_of(items, dp, rows)
    if grid is None:
        return
    dealt = deal(sort_rows(grid))
    check(dealt, items)
    assert dealt.lockstep() == sort_rows(grid).lockstep() <= grid.lockstep()
    before = max(dealt.rank_costs())
    swap_bins(dealt, 0, max_moves=50)
    check(dealt, items)
    assert max(dealt.rank_costs()) <= before
    assert dealt.lockstep() == sort_rows(grid).lockstep()


@given(st.lists(st.integers(1, 60), min_size=2, max_size=7))
def test_two_bins_are_divided_in_the_best_way(loads: list[int]) -> None:
    items = sort_items(range(len(loads)), loads, [load * load for load in loads], CAPACITY)
    everyone = range(len(loads))
    best = None
    for size in range(1, len(loads)):
        for first in combinations(everyone, size):
            parts = [first, [item for item in everyone if item not in first]]
            if all(sum(items.loads[item] for item in part) <= CAPACITY for part in parts):
                cost = max(sum(items.costs[item] for item in part) for part in parts)
                best = cost if best is None else min(best, cost)
    halves = divide_in_two(items, everyone, CAPACITY)
    assert (halves.cost if halves else None) == best
    if halves:
        assert sorted(halves.first + halves.second) == list(everyone)


@pytest.mark.parametrize("holes", [1, 2, 5])
def test_the_step_bound_is_reached_by_pairs(holes: int) -> None:
    """holes + 1 equal samples: some rank has two."""
    items = sort_items(range(holes + 1), [10] * (holes + 1), [7] * (holes + 1), CAPACITY)
    assert step_bound([items], holes, 1) == 14


def test_the_lockstep_bound_sees_what_a_row_cannot_hold() -> None:
    """Beside a sample of 10,000 only 1,000 fit: rows cost 10,000 and 500, though the total is 12,000 on two ranks."""
    loads = [100, *[10] * 20]
    items = sort_items(range(21), loads, [load * load for load in loads], CAPACITY)
    assert 10_490 < lockstep_bound(items, 2, 2, CAPACITY) <= 10_500
