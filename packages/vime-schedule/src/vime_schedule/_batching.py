"""What bounds one micro-batch: a token budget per GPU, or a number of samples.

Laws
- A micro-batch holds `round_up(sum_i share(T_i), pack_align)` tokens on one GPU. share(T) is `round_up(T, a)` without
  context parallelism and `2 * ceil(T / (2 * cp * a)) * a` under zigzag context parallelism, a = `sequence_align`.
- Under the contiguous layout the packed stream is rounded up to `cp * pack_align` and cut into cp equal slices.
- Both rules are the same comparison: the shares of a micro-batch add up to at most `capacity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vime_schedule._errors import ScheduleError, check_choice, check_positive

CpLayout: TypeAlias = Literal["zigzag", "contiguous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """Micro-batches of any number of samples, at most `max_tokens_per_gpu` padded tokens on each GPU.

    Args:
        max_tokens_per_gpu: tokens one GPU may hold, padding included; a hard cap.
        sequence_align: every sequence is padded to a multiple of this on each rank (per zigzag chunk under CP).
        pack_align: the packed stream of a GPU is padded to a multiple of this, e.g. tp or 128 * tp.
        cp_layout: how context parallelism cuts: "zigzag" two chunks of every sequence per rank, or "contiguous"
            one slice of the packed stream per rank. It matters only with cp > 1.

    Raises:
        ScheduleError: if a number is not a whole number of at least 1, the layout is unknown, or one `pack_align`
            is already more than the budget.

    >>> TokenBudget(max_tokens_per_gpu=16).gpu_tokens([9, 9, 9, 9], cp=4)   # 2 * ceil(9 / 8) each
    16
    """

    max_tokens_per_gpu: int
    sequence_align: int = 1
    pack_align: int = 1
    cp_layout: CpLayout = "zigzag"

    def __post_init__(self) -> None:
        for name in ("max_tokens_per_gpu", "sequence_align", "pack_align"):
            check_positive(name, getattr(self, name), "counts tokens")
        check_choice("cp_layout", self.cp_layout, ("zigzag", "contiguous"))
        if self.max_tokens_per_gpu < self.pack_align:
            raise ScheduleError(
                f"max_tokens_per_gpu={self.max_tokens_per_gpu} is below pack_align={self.pack_align}, so no "
                "micro-batch fits: raise the budget or lower `pack_align`."
            )

    def capacity(self, cp: int) -> int:
        """The most that the shares of one micro-batch may add up to."""
        usable = self.max_tokens_per_gpu // self.pack_align * self.pack_align
        return usable * cp if self._is_stream(cp) else usable

    def shares(self, lengths: Sequence[int], cp: int) -> Sequence[int]:
        """What each sample adds to its micro-batch, in the unit of `capacity`."""
        if cp == 1 or self._is_stream(cp):
            align = self.sequence_align
            return lengths if align == 1 else [-(-length // align) * align for length in lengths]
        chunk = 2 * self.sequence_align
        return [-(-length // (chunk * cp)) * chunk for length in lengths]

    def gpu_tokens(self, lengths: Sequence[int], cp: int) -> int:
        """Tokens that one GPU holds when samples of these lengths form one micro-batch, padding included."""
        filled = sum(self.shares(lengths, cp))
        if self._is_stream(cp):
            return -(-filled // (cp * self.pack_align)) * self.pack_align
        return -(-filled // self.pack_align) * self.pack_align

    def _is_stream(self, cp: int) -> bool:
        return cp > 1 and self.cp_layout == "contiguous"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSize:
    """Micro-batches of `micro_batch_size` samples each, whatever their lengths.

    Where the samples of a step do not divide evenly, sizes differ by at most one and none is above the given size.

    Raises:
        ScheduleError: if the size is not a whole number of at least 1.

    >>> FixedSize(micro_batch_size=2).capacity(cp=1)
    2
    """

    micro_batch_size: int

    def __post_init__(self) -> None:
        check_positive("micro_batch_size", self.micro_batch_size, "counts samples")

    def capacity(self, cp: int) -> int:
        """The most samples of one micro-batch."""
        return self.micro_batch_size

    def shares(self, lengths: Sequence[int], cp: int) -> Sequence[int]:
        """Every sample counts one."""
        return [1] * len(lengths)

    def gpu_tokens(self, lengths: Sequence[int], cp: int) -> int:
        """Tokens that one GPU holds when samples of these lengths form one micro-batch, cut evenly over cp ranks."""
        return -(-sum(lengths) // cp)


Batching: TypeAlias = TokenBudget | FixedSize
