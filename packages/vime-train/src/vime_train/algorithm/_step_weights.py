"""The weight of every sample in its optimizer step, from the whole step, before the plan is cut.

Always true: the weights of a step make its loss the mean that `aggregation` names, whatever rank and micro-batch a
sample is in; samples that train in no step, and fully masked ones, have weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vime_cp import sample_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vime_schedule import Schedule
    from vime_train.config import AlgorithmSection
    from vime_train.rollout import Sample


def step_weights(schedule: Schedule, samples: Sequence[Sample], section: AlgorithmSection) -> npt.NDArray[np.float64]:
    """One weight per sample of the batch; each step's samples are weighted among themselves."""
    weights = np.zeros(len(samples))
    for step in schedule.steps:
        members = [position for rank in step.micro_batches for micro_batch in rank for position in micro_batch]
        weights[members] = batch_weights([samples[position] for position in members], section)
    return weights


def batch_weights(samples: Sequence[Sample], section: AlgorithmSection) -> npt.NDArray[np.float64]:
    """One weight per sample, as if all of them made one step."""
    by_prompt = section.aggregation == "prompt_mean"
    ids = [sample.rollout_id for sample in samples]
    return sample_weights(
        section.aggregation,
        [sum(sample.loss_mask) for sample in samples],
        rollout_ids=ids,
        prompt_ids=[sample.group_id for sample in samples] if by_prompt else None,
        constant=_divisor(section, len(set(ids))),
    ).numpy()


def _divisor(section: AlgorithmSection, rollouts: int) -> float | None:
    """Of `constant`: the tokens that as many rollouts could have; None of the other aggregations."""
    if section.aggregation != "constant" or section.constant_tokens is None:
        return None
    return float(section.constant_tokens * max(1, rollouts))
