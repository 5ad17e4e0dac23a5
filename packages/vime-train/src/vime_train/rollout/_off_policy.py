"""Tokens that older weights sampled: in answers that took several iterations, waited in the buffer, or were generated
while the trainers moved on.

Always true: a token's mask is decided by its own weight version, so it fits an answer that was continued often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vime_metrics import Mean
from vime_train.rollout._samples import Rollout, Sample


def only_version(sample: Sample, version: int) -> Sample:
    """The sample with every token masked that other weights than `version` sampled.

    Example:
        >>> sample = Sample(tokens=(2, 3, 4, 1), response_length=3, loss_mask=(1, 1, 0), rollout_log_probs=(-1, -1, -1),
        ...     rollout_id=0, group_id=0, reward=1.0, status="completed", weight_version=7, weight_versions=(6, 7, 7))
        >>> only_version(sample, 7).loss_mask
        (0, 1, 0)
    """
    pairs = zip(sample.loss_mask, sample.token_versions, strict=True)
    return replace(sample, loss_mask=tuple(mask if found == version else 0 for mask, found in pairs))


def mask_off_policy(rollouts: Iterable[Rollout], version: int) -> list[Rollout]:
    """The rollouts with every token masked that other weights than `version` sampled."""
    return [
        replace(rollout, samples=tuple(only_version(sample, version) for sample in rollout.samples))
        for rollout in rollouts
    ]


def off_policy_share(rollouts: Sequence[Rollout], version: int) -> Mean:
    """The share of response tokens that other weights than `version` sampled."""
    return Mean.of([float(found != version) for found in _token_versions(rollouts)])


def staleness(rollouts: Sequence[Rollout], version: int) -> Mean:
    """By how many versions `version` is newer than the weights that sampled a response token, on average."""
    return Mean.of([float(version - found) for found in _token_versions(rollouts)])


def _token_versions(rollouts: Sequence[Rollout]) -> Iterator[int]:
    return (found for rollout in rollouts for sample in rollout.samples for found in sample.token_versions)
