"""Advantages of a batch, and the share of it that is left when some of its rollouts are not trained on.

Always true:

- advantages are one array per sample, in the order of the rollouts and of the samples within each, one number per
  response token; whatever a user's function returns instead is an error that says so;
- weight among all = weight among the kept * surviving share, for every kept sample and every aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vime_train.plugins import CONTRACTS, PluginCallError, calling, load

if TYPE_CHECKING:
    import numpy.typing as npt

    from vime_train.config import AlgorithmSection
    from vime_train.rollout._samples import Rollout


def batch_advantages(rollouts: Sequence[Rollout], section: AlgorithmSection) -> Sequence[npt.NDArray[np.float32]]:
    """One array per sample of the rollouts."""
    if section.advantage_function is None:
        from vime_train.algorithm import advantages  # torch comes with it: `plan` and `--help` do without

        return advantages(rollouts, section)
    name = f"algorithm.advantage_function = {section.advantage_function!r}"
    function = load(section.advantage_function, CONTRACTS["algorithm.advantage_function"])
    with calling(name, lambda: f"{len(rollouts)} rollouts"):
        arrays = [np.asarray(values, np.float32) for values in function(rollouts, section)]
    lengths = [sample.response_length for rollout in rollouts for sample in rollout.samples]
    if [array.shape for array in arrays] != [(length,) for length in lengths]:
        raise PluginCallError(
            f"{name} returned arrays of shapes {[array.shape for array in arrays][:5]} and so on; one per sample in "
            f"the order of the rollouts is needed, with one number per response token: {lengths[:5]} and so on."
        )
    bad = [place for place, array in enumerate(arrays) if not np.isfinite(array).all()]
    if bad:
        raise PluginCallError(f"{name} returned numbers that are not finite for samples {bad[:5]}.")
    return arrays


def surviving_share(kept: Sequence[Rollout], everything: Sequence[Rollout], section: AlgorithmSection) -> float:
    """What a sample weighs among all rollouts, over what it weighs among the kept ones; 1 where nothing weighs."""
    from vime_train.algorithm import batch_weights

    ids = {rollout.rollout_id for rollout in kept}
    samples = [sample for rollout in everything for sample in rollout.samples]
    survivors = [sample for sample in samples if sample.rollout_id in ids]
    among_all = batch_weights(samples, section)[[sample.rollout_id in ids for sample in samples]]
    among_kept = batch_weights(survivors, section)
    return float(among_all.sum() / among_kept.sum()) if among_kept.any() else 1.0
