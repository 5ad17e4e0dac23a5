"""Fill fewer rows than there are, where the pipeline asks for more than the samples need.

A row costs what its dearest bin costs, so a few long samples spread over many rows are paid for in each. Where fewer
rows hold nearly all samples, the other rows may have the cheapest samples, one in each bin, and cost next to nothing.

Laws
- As for any packing: every item is in exactly one bin, no bin is empty, the capacity holds.
"""

from __future__ import annotations

from vime_schedule._planner._count import fewest_bins
from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._heights import RowHeights
from vime_schedule._planner._items import Items
from vime_schedule._planner._pack import pack_rows

TRIES = 3  # numbers of rows, from the fewest on


def pack_fewer_rows(items: Items, dp: int, num_rows: int, capacity: int) -> Grid | None:
    """Pack into the fewest rows that hold nearly all items; None if as many are needed as there are.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3, 4], loads=[8, 5, 3, 1, 1], costs=[8, 5, 3, 1, 1], capacity=12)
    >>> pack_fewer_rows(items, dp=2, num_rows=2, capacity=12).bins
    [[0], [1, 2], [3], [4]]
    """
    fewest = -(-fewest_bins(items, capacity) // dp)
    for rows in range(fewest, min(fewest + TRIES, num_rows)):
        size = len(items) - dp * (num_rows - rows)
        kept = items.first(size)
        packed = pack_rows(kept, dp, rows, capacity, RowHeights(kept, dp, rows, capacity))
        if packed is not None:
            return sort_rows(packed + Grid.of([[item] for item in items.indices[size:]], items, dp))
    return None
