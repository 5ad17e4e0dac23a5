"""Work in threads that end with the program.

Always true: nobody waits for a thread that is of no use any more, neither the call that gave it up nor the program when
it ends, as it would for those of `concurrent.futures`; a caller can be interrupted while it waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_Outcome = tuple[int, Result | None, BaseException | None]


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], *, threads: int) -> list[Result]:
    """The results for all items, in their order, `threads` of them at a time; the first error ends it.

    >>> in_threads(lambda word: word.upper(), ["a", "b", "c"], threads=2)
    ['A', 'B', 'C']
    """
    places: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(items)):
        places.put(place)
    outcomes: queue.SimpleQueue[_Outcome[Result]] = queue.SimpleQueue()
    given_up = threading.Event()

    def work() -> None:
        while not given_up.is_set():
            try:
                place = places.get_nowait()
            except queue.Empty:
                return
            outcomes.put(_outcome(function, items[place], place))

    for _ in range(min(threads, len(items))):
        threading.Thread(target=work, daemon=True).start()
    found: dict[int, Result] = {}
    try:
        while len(found) < len(items):
            place, result, error = outcomes.get()
            if error is not None:
                raise error
            found[place] = result  # type: ignore[assignment]
    finally:
        given_up.set()
    return [found[place] for place in range(len(items))]


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """What the function returns or raises, if that takes at most so long.

    Raises:
        TimeoutError: it took longer; its thread is left alone.
    """
    outcomes: queue.SimpleQueue[_Outcome[Result]] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: outcomes.put(_outcome(lambda _: function(), None, 0)), daemon=True)
    thread.start()
    try:
        _, result, error = outcomes.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError("timed out") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _outcome(function: Callable[[Item], Result], item: Item, place: int) -> _Outcome[Result]:
    try:
        return place, function(item), None
    except BaseException as error:
        return place, None, error
