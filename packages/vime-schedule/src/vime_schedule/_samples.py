"""What a caller gives for its samples, checked once and turned into plain numbers.

Laws
- Lengths are whole numbers from 1 to 2**53; ids are hashable, present and one per sample; an error names the position.
- Rollouts and signatures become numbers by order of first appearance, so a plan never depends on hashes.
- A cost is asked once per distinct length and must answer a number from 0 to 1e250.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import isnan
from operator import index

from vime_schedule._errors import ScheduleError

LONGEST = 2**53
DEAREST = 1e250
_RAISED_BY_COSTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def check_total_lengths(total_lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths as plain integers."""
    lengths = tuple(total_lengths)
    if not lengths:
        raise ScheduleError("`total_lengths` is empty: give the length of at least one sample.")
    if set(map(type, lengths)) != {int}:
        lengths = tuple([_whole(position, length) for position, length in enumerate(lengths)])
    if min(lengths) < 1 or max(lengths) > LONGEST:
        position = next(i for i, length in enumerate(lengths) if not 1 <= length <= LONGEST)
        raise ScheduleError(
            f"total_lengths[{position}] is {lengths[position]} but counts tokens: give a whole number from 1 to 2**53."
        )
    return lengths


def _whole(position: int, length: object) -> int:
    if isinstance(length, bool):
        raise _not_whole(position, length)
    try:
        return index(length)  # type: ignore[arg-type]
    except TypeError:
        raise _not_whole(position, length) from None


def _not_whole(position: int, length: object) -> ScheduleError:
    return ScheduleError(
        f"total_lengths[{position}] is {length!r} but counts tokens: give a whole number from 1 to 2**53."
    )


def number_by_appearance(name: str, ids: Sequence[Hashable], num_samples: int) -> tuple[int, ...]:
    """Number the distinct `ids` 0, 1, 2, ... in the order in which they first appear."""
    if len(ids) != num_samples:
        raise ScheduleError(f"`{name}` has {len(ids)} entries for {num_samples} samples: give one per sample.")
    numbers: dict[Hashable, int] = {}
    try:
        numbered = tuple([numbers.setdefault(identity, len(numbers)) for identity in ids])
    except TypeError:
        position = next(i for i, identity in enumerate(ids) if not _is_hashable(identity))
        raise ScheduleError(
            f"{name}[{position}] is {ids[position]!r}, which cannot be hashed: give a string, a number or a tuple."
        ) from None
    if None in numbers:
        position = numbered.index(numbers[None])
        raise ScheduleError(
            f"{name}[{position}] is None: give every sample an id, or pass None for the whole argument."
        )
    return numbered


def _is_hashable(identity: object) -> bool:
    try:
        hash(identity)
    except TypeError:
        return False
    return True


def evaluate_costs(cost: Callable[[int], float], lengths: Sequence[int]) -> list[float]:
    """The cost of every sample."""
    distinct = set(lengths)
    try:
        table = dict(zip(distinct, map(float, map(cost, distinct)), strict=True))
    except _RAISED_BY_COSTS:
        table = {}
    values = table.values()
    if not table or not 0 <= min(values) <= max(values) <= DEAREST or isnan(sum(values)):
        table = {length: _evaluate(cost, length, lengths) for length in sorted(distinct)}
    return list(map(table.__getitem__, lengths))


def _evaluate(cost: Callable[[int], float], length: int, lengths: Sequence[int]) -> float:
    """The cost of one length, or an error that says where it is needed."""
    try:
        value = float(cost(length))
    except _RAISED_BY_COSTS as error:
        where = f"the cost of {length} tokens (first at position {lengths.index(length)})"
        if isinstance(error, ScheduleError):  # which says itself what to do
            raise ScheduleError(f"{where}: {error}") from error
        raise ScheduleError(
            f"{where} failed with {type(error).__name__}: {error}: give a cost that answers for every length."
        ) from error
    if not 0 <= value <= DEAREST:
        raise ScheduleError(
            f"the cost of {length} tokens (first at position {lengths.index(length)}) is {value!r}: "
            "give a cost from 0 to 1e250."
        )
    return value
