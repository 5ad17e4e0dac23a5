"""Simulated ranks: every rank of a group as a thread of one process, so that a law can be tested without processes.

Laws
- Collectives of simulated ranks combine in rank order, so results do not depend on thread timing.
- Tensors keep their graph across ranks: the sum of all ranks' losses can be differentiated by one backward,
  which is what a differentiable all-reduce of partial losses computes over real processes.
- A rank that leaves while another waits is an error that names both, never a hang.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class MissingRankError(RuntimeError):
    """A simulated rank ended while other ranks waited for it in a collective."""


class SimulatedGroup:
    """One simulated rank's view of its group; pass it where a process group is expected.

    >>> from vime_cp import simulate
    >>> simulate(2, lambda group: (group.rank, group.size))
    [(0, 2), (1, 2)]
    """

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank = rank
        self.size = size
        self._meeting = meeting

    def exchange(self, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Give this rank's tensor, return the tensors of all ranks in rank order."""
        values = self._meeting.exchange(self.rank, value)
        shapes = [tuple(other.shape) for other in values]
        if len(set(shapes)) > 1:
            raise ValueError(f"collective over simulated ranks: shapes differ by rank: {shapes}; pass equal shapes.")
        return values


class _Meeting:
    """Where the threads of one group wait for each other."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._round = 0
        self._given: dict[int, torch.Tensor] = {}
        self._taken: tuple[torch.Tensor, ...] = ()
        self._left: list[int] = []

    def exchange(self, rank: int, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with self._changed:
            self._given[rank] = value
            this_round = self._round
            if len(self._given) == self._size:
                # No rank can overwrite `_taken` before all have read it: the next round needs every rank again.
                self._taken = tuple(self._given[r] for r in range(self._size))
                self._given = {}
                self._round += 1
                self._changed.notify_all()
            while self._round == this_round:
                if self._left:
                    raise MissingRankError(
                        f"rank {rank} waits in a collective but rank {self._left[0]} of {self._size} has ended: "
                        "every rank must take part in every collective, also when it holds no token."
                    )
                self._changed.wait()
            return self._taken

    def leave(self, rank: int) -> None:
        with self._changed:
            self._left.append(rank)
            self._changed.notify_all()


def simulate(size: int, function: Callable[[SimulatedGroup], Result]) -> list[Result]:
    """Run `function(group)` once per rank, each in its own thread, and return the results in rank order.

    `size` counts ranks. Gradients: add up what the ranks return and call `backward` once on the sum.
    The first rank's error is raised again here; a rank that skips a collective raises `MissingRankError`.

    >>> from vime_cp import simulate, whiten
    >>> parts = simulate(2, lambda group: whiten(torch.tensor([1.0 + 2.0 * group.rank]), group=group))
    >>> torch.cat(parts)
    tensor([-0.7071,  0.7071])
    """
    if size < 1:
        raise ValueError(f"simulate: size is {size} but must be at least 1: pass the number of ranks.")
    meeting = _Meeting(size)
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    grad_enabled = torch.is_grad_enabled()

    def run(rank: int) -> None:
        try:
            with torch.set_grad_enabled(grad_enabled):
                results[rank] = function(SimulatedGroup(rank, size, meeting))
        except BaseException as error:  # raised again by the calling thread
            errors[rank] = error
        finally:
            meeting.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), name=f"simulated-rank-{rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors.values(), key=lambda error: isinstance(error, MissingRankError)):
        raise error
    return [results[rank] for rank in range(size)]
