"""Making a failing case smaller while it still fails: fewer samples, ranks and micro-batches, shorter sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ._case import Case, SampleSpec, Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._report import Failure

MOST_TRIES = 400


def shrink(failure: Failure, examine: Callable[[Case], Failure | None]) -> Failure:
    """Take any smaller case that fails, until none does or `MOST_TRIES` cases were tried."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for case in _smaller(failure.case):
            tries += 1
            found = examine(case)
            if found is not None:
                failure, smaller = found, True
                break
            if tries >= MOST_TRIES:
                return failure
    return failure


def _smaller(case: Case) -> Iterator[Case]:
    """Cases one step smaller, the largest steps first."""
    for i in range(len(case.samples)):
        if len(case.samples) > 1:
            yield _without(case, i)
    for split in _smaller_splits(case.split):
        yield replace(case, split=split)
    for i, sample in enumerate(case.samples):
        for spec in _smaller_samples(sample):
            yield replace(case, samples=(*case.samples[:i], spec, *case.samples[i + 1 :]))


def _without(case: Case, gone: int) -> Case:
    ranks = tuple(
        tuple(tuple(i - (i > gone) for i in members if i != gone) for members in rank) for rank in case.split.ranks
    )
    return Case(samples=case.samples[:gone] + case.samples[gone + 1 :], split=replace(case.split, ranks=ranks))


def _smaller_splits(split: Split) -> Iterator[Split]:
    ranks = split.ranks
    if len(ranks) > 1:
        for other in range(1, len(ranks)):
            merged = tuple(a + b for a, b in zip(ranks[0], ranks[other], strict=True))
            yield replace(split, ranks=(merged, *ranks[1:other], *ranks[other + 1 :]))
    if split.num_microbatches > 1:
        yield replace(split, ranks=tuple((rank[0] + rank[1], *rank[2:]) for rank in ranks))
    for cp in range(1, split.cp):
        yield replace(split, cp=cp)
    if split.layout != "zigzag":
        yield replace(split, layout="zigzag")


def _smaller_samples(sample: SampleSpec) -> Iterator[SampleSpec]:
    length = len(sample.mask)
    for shorter in {length // 2, length - 1} - {0, length}:
        if any(sample.mask[:shorter]) == any(sample.mask):
            yield replace(sample, mask=sample.mask[:shorter])
    if any(sample.mask) and not all(sample.mask):
        yield replace(sample, mask=(1,) * length)
    for prompt in {1, sample.prompt - 1} - {0, sample.prompt}:
        yield replace(sample, prompt=prompt)
    if sample.rollout > 0:
        yield replace(sample, rollout=sample.rollout - 1)
