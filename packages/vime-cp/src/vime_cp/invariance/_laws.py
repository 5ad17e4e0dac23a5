"""The laws that a loss is examined for: each draws cases, and compares two ways to run one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ._case import Case, SampleSpec, Split
from ._draw import draw_samples, draw_split

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ._evaluate import Outcome

    Run = Callable[..., Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Something that is true of a loss which does not depend on the split.

    Attributes:
        name: short name, for tables and the command line.
        meaning: one sentence.
        draw: makes a random case.
        premise: whether a case shows this law and nothing else; what is drawn does, and so must what is shrunk.
        compare: runs a case both ways, and returns what was got, what it should equal, and which samples of the case
            the latter's samples are.
    """

    name: str
    meaning: str
    draw: Callable[[random.Random], Case]
    premise: Callable[[Case], bool]
    compare: Callable[[Run, Case], tuple[Outcome, Outcome, tuple[int, ...]]]


def _split_law(
    name: str,
    meaning: str,
    draw: Callable[[random.Random, int], Split],
    least: int,
    premise: Callable[[Split], bool] = lambda split: True,
) -> Law:
    def draw_case(rng: random.Random) -> Case:
        samples = draw_samples(rng, rng.randint(least, 7))
        return Case(samples=samples, split=draw(rng, len(samples)))

    return Law(
        name=name,
        meaning=meaning,
        draw=draw_case,
        premise=lambda case: _no_filler(case) and premise(case.split),
        compare=_against_whole,
    )


def _no_filler(case: Case) -> bool:
    return all(members for rank in case.split.ranks for members in rank)


def _against_whole(run: Run, case: Case) -> tuple[Outcome, Outcome, tuple[int, ...]]:
    return run(case), run(_whole(case.samples)), tuple(range(len(case.samples)))


def _whole(samples: tuple[SampleSpec, ...]) -> Case:
    return Case(samples=samples, split=Split.whole(len(samples)))


def _draw_everything(rng: random.Random, count: int) -> Split:
    dp = rng.choice([2, 4])
    most = max(1, min(3, count // dp))
    return draw_split(rng, count, micro_batches=rng.randint(1, most), dp=dp, cp=rng.choice([2, 3, 4]))


def _draw_order(rng: random.Random, count: int) -> Split:
    return Split(ranks=((tuple(rng.sample(range(count), count)),),))


def _draw_fully_masked(rng: random.Random) -> Case:
    samples = draw_samples(rng, rng.randint(2, 6))
    lonely = max(sample.rollout for sample in samples) + 1
    at = rng.randrange(len(samples))
    masked = replace(samples[at], mask=(0,) * len(samples[at].mask), rollout=lonely)
    samples = (*samples[:at], masked, *samples[at + 1 :])
    return _whole(samples)


def _masked_and_unmasked(case: Case) -> bool:
    return {any(sample.mask) for sample in case.samples} == {True, False}


def _compare_fully_masked(run: Run, case: Case) -> tuple[Outcome, Outcome, tuple[int, ...]]:
    kept = tuple(i for i, sample in enumerate(case.samples) if any(sample.mask))
    return run(case), run(_whole(tuple(case.samples[i] for i in kept))), kept


def _draw_all_masked(rng: random.Random) -> Case:
    samples = [replace(sample, mask=(0,) * len(sample.mask)) for sample in draw_samples(rng, rng.randint(1, 4))]
    return Case(samples=tuple(samples), split=draw_split(rng, len(samples), cp=rng.choice([1, 2])))


def _nothing_unmasked(case: Case) -> bool:
    return not any(any(sample.mask) for sample in case.samples)


def _compare_all_masked(run: Run, case: Case) -> tuple[Outcome, Outcome, tuple[int, ...]]:
    got = run(case)
    zeros = {name: tuple(map(torch.zeros_like, grads)) for name, grads in got.gradients.items()}
    return got, replace(got, value=torch.zeros_like(got.value), gradients=zeros), tuple(range(len(case.samples)))


def _draw_poisoned(rng: random.Random) -> Case:
    samples = draw_samples(rng, rng.randint(1, 5))
    return Case(samples=samples, split=draw_split(rng, len(samples), cp=rng.choice([1, 2])))


def _compare_poisoned(run: Run, case: Case) -> tuple[Outcome, Outcome, tuple[int, ...]]:
    return run(case, poison=True), run(case), tuple(range(len(case.samples)))


def _draw_filler(rng: random.Random) -> Case:
    samples = draw_samples(rng, rng.randint(2, 5))
    split = draw_split(rng, len(samples), micro_batches=2, cp=rng.choice([1, 2]))
    return Case(samples=samples, split=replace(split, ranks=(*split.ranks, ((), ()))))


def _busy(split: Split) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(rank for rank in split.ranks if all(rank))


def _has_idle_rank(case: Case) -> bool:
    return 0 < len(_busy(case.split)) < len(case.split.ranks)


def _compare_filler(run: Run, case: Case) -> tuple[Outcome, Outcome, tuple[int, ...]]:
    busy = replace(case, split=replace(case.split, ranks=_busy(case.split)))
    return run(case), run(busy), tuple(range(len(case.samples)))


LAWS: tuple[Law, ...] = (
    _split_law(
        "micro-batches",
        "cutting a step into micro-batches changes nothing",
        lambda rng, count: draw_split(rng, count, micro_batches=rng.randint(2, 4)),
        least=4,
        premise=lambda split: split.num_microbatches > 1,
    ),
    _split_law(
        "data parallel",
        "spreading samples over DP ranks changes nothing",
        lambda rng, count: draw_split(rng, count, dp=rng.choice([2, 3, 4])),
        least=4,
        premise=lambda split: len(split.ranks) > 1,
    ),
    _split_law(
        "context parallel",
        "cutting sequences over CP ranks changes nothing",
        lambda rng, count: draw_split(rng, count, cp=rng.choice([2, 3, 4, 8])),
        least=1,
        premise=lambda split: split.cp > 1,
    ),
    _split_law("all at once", "micro-batches, DP and CP together change nothing", _draw_everything, least=4),
    _split_law("sample order", "the order of samples in a micro-batch changes nothing", _draw_order, least=2),
    Law(
        name="masked samples",
        meaning="a fully masked sample adds nothing, also not to a denominator",
        draw=_draw_fully_masked,
        premise=_masked_and_unmasked,
        compare=_compare_fully_masked,
    ),
    Law(
        name="all masked",
        meaning="a step without an unmasked token has loss 0 and gradient 0",
        draw=_draw_all_masked,
        premise=_nothing_unmasked,
        compare=_compare_all_masked,
    ),
    Law(
        name="masked values",
        meaning="NaN at masked positions and padding reaches neither loss nor gradient",
        draw=_draw_poisoned,
        premise=_no_filler,
        compare=_compare_poisoned,
    ),
    Law(
        name="fillers",
        meaning="a rank whose micro-batches are empty takes part and adds nothing",
        draw=_draw_filler,
        premise=_has_idle_rank,
        compare=_compare_filler,
    ),
)
