"""The parts of the planner beside slow, obvious versions of themselves."""

from __future__ import annotations

import random
from itertools import chain
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vime_schedule._planner._balance import _spread_over_ranks
from vime_schedule._planner._bounds import step_bound
from vime_schedule._planner._deal import deal, sort_rows, swap_bins
from vime_schedule._planner._exchange import Exchange
from vime_schedule._planner._fewer import pack_fewer_rows
from vime_schedule._planner._grade import pack_graded
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._heights import RowHeights
from vime_schedule._planner._items import Items, sort_items
from vime_schedule._planner._levels import level_rows
from vime_schedule._planner._lower import lower_rows
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._pack import pack_rows
from vime_schedule._planner._peel import FreeItems, fill_rooms, first_fit_decreasing, peel_rows
from vime_schedule._planner._refill import refill_rows
from vime_schedule._planner._rematch import _lower, _put_back, _take, rematch_rows

CAPACITY = 100
COSTS = {
    "convex": lambda load: load * (20 + load),
    "tokens": lambda load: load,
    "falling": lambda load: 5000 // load + 1,
    "flat": lambda load: 7,
}


@st.composite
def item_lists(draw: st.DrawFn, *, monotone: bool = False) -> Items:
    loads = draw(st.lists(st.integers(1, 130), min_size=1, max_size=40))
    if monotone:
        costs = [load * (20 + load) for load in loads]
    else:
        costs = draw(st.lists(st.integers(1, 9000), min_size=len(loads), max_size=len(loads)))
    return sort_items(range(len(loads)), loads, costs, CAPACITY)


def grid_of(items: Items, dp: int, rows: int) -> Grid | None:
    return pack_rows(items, dp, rows, CAPACITY, RowHeights(items, dp, rows, CAPACITY))


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
    assert RowHeights(items, dp, rows, CAPACITY).bound <= grid.lockstep() * (1 + 1e-9)


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


def ranks_of(*ranks: list[list[int]]) -> tuple[Grid, Items]:
    """The bins of every rank, given as loads that cost their squares."""
    loads = sorted(chain.from_iterable(chain.from_iterable(ranks)), reverse=True)
    items = sort_items(range(len(loads)), loads, [load * load for load in loads], CAPACITY)
    free = list(range(len(loads)))
    bins = [[] for _ in chain.from_iterable(ranks)]
    for rank, held in enumerate(ranks):
        for row, of_bin in enumerate(held):
            for load in of_bin:
                item = next(item for item in free if loads[item] == load)
                free.remove(item)
                bins[row * len(ranks) + rank].append(item)
    return Grid.of(bins, items, len(ranks)), items


def test_full_ranks_give_one_item_for_two() -> None:
    """Bins of 60 and 40 and of 50, 25, 15, 10 on two ranks: one for two keeps both full and levels them."""
    grid, items = ranks_of([[60, 40]], [[50, 25, 15, 10]])
    assert Exchange(grid, items, [[0], [1]], capacity=CAPACITY, tries=1).run(4500, max_moves=9) == 1
    check(grid, items)
    assert grid.used == [100, 100]
    assert sorted(grid.costs) == [4200, 4450]


def test_full_ranks_give_two_items_for_two() -> None:
    """All bins are full, so only a pair can go for a pair: 60 and 40 for 50 and 50 levels the ranks best."""
    grid, items = ranks_of([[70, 30], [60, 40]], [[55, 45], [50, 50]])
    assert Exchange(grid, items, [[0, 2], [1, 3]], capacity=CAPACITY, tries=1).run(10525, max_moves=9) == 1
    check(grid, items)
    assert grid.used == [100] * 4
    assert grid.rank_costs() == [10800, 10250]


def test_a_trade_uses_the_room_of_the_giver() -> None:
    """60 for 40 and 30 fits a bin of 90, and levels the ranks better than 100 for 99 and 1."""
    grid, items = ranks_of([[60, 30], [100], [100]], [[40, 30, 30], [99, 1], [99, 1]])
    assert Exchange(grid, items, [[0, 2, 4], [1, 3, 5]], capacity=CAPACITY, tries=1).run(24200, max_moves=9) == 1
    check(grid, items)
    assert grid.rank_costs() == [23400, 24104]


def test_a_trade_overfills_no_bin() -> None:
    """60 for 40 and 30 would level the ranks, but that bin of the giver is full, if not the other."""
    grid, items = ranks_of([[60, 40], [90]], [[40, 30, 30], [90]])
    assert Exchange(grid, items, [[0, 2], [1, 3]], capacity=CAPACITY, tries=1).run(12500, max_moves=9) == 0
    check(grid, items)


def test_rows_aim_at_what_their_bins_can_follow() -> None:
    """13 large samples in 16 bins: the 3 bins without one are full below the others, so their row is best low."""
    draw = random.Random(4)
    loads = [draw.randint(60, 75) for _ in range(13)] + [draw.randint(1, 4) for _ in range(draw.randint(140, 230))]
    loads.sort(reverse=True)
    items = sort_items(range(len(loads)), loads, [load * (20 + load) for load in loads], CAPACITY)
    heights = RowHeights(items, 4, 4, CAPACITY)
    grid = pack_rows(items, 4, 4, CAPACITY, heights)
    assert grid is not None
    assert grid.lockstep() <= 1.005 * heights.bound


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


def least_lockstep(items: Items, dp: int, rows: int) -> float:
    """The least sum of every dp-th dearest bin over all ways to fill `dp * rows` bins, none of them empty."""
    best = inf
    bins: list[list[int]] = [[] for _ in range(dp * rows)]

    def place(item: int) -> None:
        nonlocal best
        if item == len(items):
            if all(bins):
                costs = sorted((sum(items.costs[i] for i in held) for held in bins), reverse=True)
                best = min(best, sum(costs[::dp]))
            return
        for b, held in enumerate(bins):
            if not held or sum(items.loads[i] for i in (*held, item)) <= CAPACITY:
                held.append(item)
                place(item + 1)
                held.pop()
                if not held:
                    break  # the other empty bins are the same
            if b and not bins[b - 1]:
                break

    place(0)
    return best


@settings(max_examples=max(50, settings.default.max_examples // 4))
@given(
    st.lists(st.integers(1, 130), min_size=2, max_size=7),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(sorted(COSTS)),
)
def test_no_rows_cost_less_than_their_bound(loads: list[int], dp: int, rows: int, kind: str) -> None:
    """For costs of every shape, beside all ways there are; `targets` add up to the bound."""
    loads = sorted(loads, reverse=True)
    items = sort_items(range(len(loads)), loads, [COSTS[kind](load) for load in loads], CAPACITY)
    best = least_lockstep(items, dp, rows)
    if best == inf:
        return
    heights = RowHeights(items, dp, rows, CAPACITY)
    assert heights.bound <= best * (1 + 1e-9)
    targets = heights.targets()
    assert targets == sorted(targets, reverse=True)
    assert len(targets) == rows


@given(item_lists(), st.integers(1, 4), st.integers(1, 8), st.integers(2, 8))
def test_graded_rows_hold_everything(items: Items, dp: int, rows: int, pp: int) -> None:
    grid = pack_graded(items, dp, rows, CAPACITY, pp)
    if grid is not None:
        assert grid.num_rows == rows
        check(grid, items)


def test_graded_rows_rise_and_fall_by_what_keeps_the_last_stage_busy() -> None:
    """On 4 stages a micro-batch costs half as much again as the one before it, until all are full."""
    items = sort_items(range(2000), [1] * 2000, [1] * 2000, CAPACITY * 10)
    grid = pack_graded(items, 1, 10, CAPACITY * 10, 4)
    assert grid is not None
    full, *rest = grid.costs[0], *grid.costs[4:]
    assert [full / cost for cost in rest] == pytest.approx([1.5, 1.5, 1.5**2, 1.5**2, 1.5**3, 1.5**3], rel=0.02)


@given(item_lists(), st.integers(1, 4), st.integers(1, 5))
def test_lowering_rows_makes_them_cheaper_together(items: Items, dp: int, rows: int) -> None:
    grid = first_fit_decreasing(items, range(len(items)), dp, rows, CAPACITY)
    if grid is None or len(grid.bins) < dp * rows:
        return
    grid = sort_rows(grid)
    before = grid.copy()
    lower_rows(grid, items, CAPACITY, 0, range(2**62))
    check(grid, items)
    assert grid.lockstep() <= before.lockstep()


def test_rows_are_lowered_across_rows() -> None:
    """Bins of 9 and 5 over 7 and 3: the 7 changes places with the 5, which the row above has slack for."""
    items = sort_items(range(5), [8, 7, 5, 3, 1], [8, 7, 5, 3, 1], CAPACITY)
    grid = Grid.of([[0, 4], [2], [1], [3]], items, 2)
    lower_rows(grid, items, CAPACITY, 14, range(15, 100))
    assert grid.lockstep() == 14


def test_full_bins_trade_one_item_for_two() -> None:
    """60 and 40 beside 50, 25, 15, 10 and 70: no bin takes a longer item, but 40 for 25 and 15 keeps both full."""
    loads = [70, 60, 50, 40, 25, 15, 10]
    items = sort_items(range(7), loads, [load * load for load in loads], CAPACITY)
    grid = Grid.of([[1, 3], [0], [2, 4, 5, 6]], items, 3)
    lower_rows(grid, items, CAPACITY, 0, range(0))
    check(grid, items)
    assert sorted(grid.bins[0]) == [1, 4, 5]
    assert grid.lockstep() == 70 * 70


def obvious_fill(items: Items, num_bins: int) -> list[int] | None:
    """What bins that start with one item each hold once the roomiest first took the longest of the others that fit."""
    used = items.loads[:num_bins]
    free = sorted(items.loads[num_bins:], reverse=True)
    for b in sorted(range(num_bins), key=used.__getitem__):
        for load in list(free):
            if used[b] + load <= CAPACITY:
                used[b] += load
                free.remove(load)
    return None if free else used


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(lambda values: sorted(values, reverse=True)),
    st.lists(st.integers(0, 15), min_size=6, max_size=6),
    st.integers(1, 2),
    st.integers(0, 60),
)
def test_rows_are_levelled_at_the_least_cost(least: list[int], numbers: list[int], dp: int, missing: int) -> None:
    """Beside raising, unit by unit, the row in which most bins follow."""
    limits = [limit for row in range(len(least)) for limit in sorted(numbers[row * dp : row * dp + dp], reverse=True)]
    heights, paid, held = list(least), 0.0, 0.0
    while held < missing:
        follow = [sum(limit > top for limit in limits[r * dp : r * dp + dp]) for r, top in enumerate(heights)]
        if not any(follow):
            break
        row = follow.index(max(follow))
        part = min(1.0, (missing - held) / follow[row])
        heights[row] += 1
        paid, held = paid + part, held + part * follow[row]
    assert sum(level_rows(least, limits, dp, missing)) - sum(least) == pytest.approx(paid, abs=1e-5)


@given(item_lists(), st.integers(1, 4), st.integers(1, 5))
def test_refilled_rows_hold_everything(items: Items, dp: int, rows: int) -> None:
    grid = grid_of(items, dp, rows)
    refilled = None if grid is None else refill_rows(grid, items, CAPACITY)
    if refilled is not None:
        assert refilled.num_rows == rows
        check(refilled, items)


@given(item_lists(), st.integers(1, 4), st.integers(2, 6))
def test_fewer_rows_hold_everything(items: Items, dp: int, rows: int) -> None:
    packed = pack_fewer_rows(items, dp, rows, CAPACITY) if len(items) >= dp * rows else None
    if packed is not None:
        assert packed.num_rows == rows
        check(packed, items)


@given(item_lists(), st.integers(1, 4), st.integers(1, 4))
def test_ranks_that_share_evenly_hold_everything(items: Items, dp: int, rows: int) -> None:
    spread = _spread_over_ranks(items, dp, rows, CAPACITY) if len(items) >= dp * rows else None
    if spread is not None:
        assert spread.num_rows == rows
        check(spread, items)


@given(item_lists(), st.integers(1, 4), st.integers(1, 5))
def test_matching_anew_breaks_nothing_and_never_costs_more(items: Items, dp: int, rows: int) -> None:
    grid = first_fit_decreasing(items, range(len(items)), dp, rows, CAPACITY)
    if grid is None:
        return
    grid = sort_rows(grid)
    matched = rematch_rows(grid, items, CAPACITY, goal=0)
    check(matched, items)
    assert matched.lockstep() <= grid.lockstep()
    assert matched == rematch_rows(grid, items, CAPACITY, goal=0)


def all_find_a_bin(items: Items, taken: list[int], rest: Grid, tops: list[int]) -> bool:
    """Whether every taken item fits into a bin of its own, below the capacity and the height of the row."""
    holder: dict[int, int] = {}

    def places(item: int, tried: set[int]) -> bool:
        for b in set(range(len(rest.bins))) - tried:
            if rest.used[b] + items.loads[item] <= CAPACITY and rest.costs[b] + items.costs[item] <= tops[b // rest.dp]:
                tried.add(b)
                if b not in holder or places(holder[b], tried):
                    holder[b] = item
                    return True
        return False

    return all(places(item, set()) for item in taken)


@given(item_lists(monotone=True), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2))
def test_after_matching_anew_no_row_can_be_lowered_alone(items: Items, dp: int, rows: int, turn: int) -> None:
    """The ranks are held against a search for a matching of items and bins."""
    grid = grid_of(items, dp, rows)
    if grid is None:
        return
    tops, rest = grid.row_maxima(), grid.copy()
    taken = _take(rest, items, turn, random.Random(0).random)
    ranks = _lower(rest, items, taken, tops, CAPACITY)
    if ranks is None:
        assert not taken
        return
    most = [items.costs[taken[rank]] if rank < len(taken) else 0 for rank in ranks]
    heights = [max(rest.costs[b] + most[b] for b in range(row * dp, row * dp + dp)) for row in range(rows)]
    assert all(height <= top for height, top in zip(heights, tops, strict=True))
    assert all_find_a_bin(items, taken, rest, heights)
    for row, height in enumerate(heights):
        if height > max(rest.costs[row * dp : row * dp + dp]):
            assert not all_find_a_bin(items, taken, rest, [*heights[:row], height - 1, *heights[row + 1 :]])
    _put_back(rest, items, taken, ranks, random.Random(0).random)
    check(rest, items)
    assert all(top <= height for top, height in zip(rest.row_maxima(), heights, strict=True))


@given(st.lists(st.integers(1, 40), min_size=8, max_size=30), st.integers(1, 8))
def test_rooms_are_filled_roomiest_first(loads: list[int], num_bins: int) -> None:
    items = sort_items(range(len(loads)), sorted(loads, reverse=True), sorted(loads, reverse=True), CAPACITY)
    grid = Grid.of([[item] for item in range(num_bins)], items, 1)
    filled = fill_rooms(items, grid, range(num_bins, len(items)), CAPACITY)
    assert (grid.used if filled else None) == obvious_fill(items, num_bins)
    if filled:
        check(grid, items)


@pytest.mark.parametrize("holes", [1, 2, 5])
def test_the_step_bound_is_reached_by_pairs(holes: int) -> None:
    """holes + 1 equal samples: some rank has two."""
    items = sort_items(range(holes + 1), [10] * (holes + 1), [7] * (holes + 1), CAPACITY)
    assert step_bound([items], holes, 1) == 14


def test_the_lockstep_bound_sees_what_a_row_cannot_hold() -> None:
    """Beside a sample of 10,000 only 1,000 fit: rows cost 10,000 and 500, though the total is 12,000 on two ranks."""
    loads = [100, *[10] * 20]
    items = sort_items(range(21), loads, [load * load for load in loads], CAPACITY)
    assert 10_490 < RowHeights(items, 2, 2, CAPACITY).bound <= 10_500


def test_the_lockstep_bound_sees_bins_without_a_large_sample() -> None:
    """Three large samples on two ranks: one bin holds only small ones, 2,000 at most, so that beside it has 4,000."""
    loads = [60, 60, 60, *[20] * 10]
    items = sort_items(range(13), loads, [load * load for load in loads], CAPACITY)
    heights = RowHeights(items, 2, 2, CAPACITY)
    assert heights.bound == pytest.approx(8_400)
    assert heights.targets() == [4_400, 4_000]
