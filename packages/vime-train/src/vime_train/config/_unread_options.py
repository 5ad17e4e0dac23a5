"""Launch check that no option is given which nothing reads: an option that does nothing is an error, not a surprise.

An option counts as given when it differs from its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig
    from vime_train.config._sections_algorithm import AlgorithmSection


class _Option(NamedTuple):
    key: str
    read: Callable[[AlgorithmSection], bool]
    """Whether anything reads it."""
    remedy: str


def _has_ratio(section: AlgorithmSection) -> bool:
    return section.loss != "sft"


def _corrects(section: AlgorithmSection) -> bool:
    return section.correction.kind != "none"


def _is_mis(section: AlgorithmSection) -> bool:
    return section.correction.kind == "mis"


def _has_critic(section: AlgorithmSection) -> bool:
    return section.has_critic


def _penalises(section: AlgorithmSection) -> bool:
    return section.kl.coefficient > 0


_RATIO = "use a loss with a ratio, such as algorithm.loss = 'policy'"
_GAE = "use algorithm.advantage = 'gae'"
_MIS = "use algorithm.correction.kind = 'mis'"
_KIND = "set algorithm.correction.kind"
_KL = "set algorithm.kl.coefficient"
_OPTIONS = (
    _Option("algorithm.divide_by_std", lambda s: s.advantage == "grpo", "use algorithm.advantage = 'grpo'"),
    _Option("algorithm.gamma", lambda s: s.discounts, "use algorithm.advantage = 'gae' or 'reinforce_plus_plus'"),
    _Option("algorithm.lam", _has_critic, _GAE),
    _Option("critic.lr", _has_critic, _GAE),
    _Option("critic.value_clip", _has_critic, _GAE),
    _Option("critic.warmup_iterations", _has_critic, _GAE),
    _Option("algorithm.clip_low", _has_ratio, _RATIO),
    _Option("algorithm.clip_high", _has_ratio, _RATIO),
    _Option("algorithm.dual_clip", lambda s: s.loss == "policy", "use algorithm.loss = 'policy'"),
    _Option("algorithm.off_policy_delta", _has_ratio, _RATIO),
    _Option("algorithm.whiten", _has_ratio, _RATIO),
    _Option(
        "algorithm.constant_tokens", lambda s: s.aggregation == "constant", "use algorithm.aggregation = 'constant'"
    ),
    _Option("algorithm.kl.estimator", _penalises, _KL),
    _Option("algorithm.kl.placement", _penalises, _KL),
    _Option("algorithm.kl.unbiased", lambda s: s.kl_in_loss, f"{_KL}, with placement = 'loss'"),
    _Option("algorithm.kl.reference", lambda s: s.needs_reference, f"{_KL} or algorithm.distillation.coefficient"),
    _Option(
        "algorithm.kl.reference_every",
        lambda s: s.needs_reference,
        f"{_KL} or algorithm.distillation.coefficient",
    ),
    _Option("algorithm.correction.kind", _has_ratio, _RATIO),
    _Option("algorithm.correction.low", _corrects, _KIND),
    _Option("algorithm.correction.high", _corrects, _KIND),
    _Option("algorithm.correction.level", _is_mis, _MIS),
    _Option("algorithm.correction.mode", _is_mis, _MIS),
    _Option("algorithm.correction.veto", _is_mis, _MIS),
    _Option(
        "algorithm.distillation.engines",
        lambda s: s.distillation.coefficient > 0,
        "set algorithm.distillation.coefficient",
    ),
    _Option(
        "algorithm.distillation.teacher",
        lambda s: s.distillation.coefficient > 0,
        "set algorithm.distillation.coefficient",
    ),
)
_DECAY = ("optimizer.decay_rollouts", "optimizer.min_lr")


def unread_options(config: RunConfig) -> Iterator[str]:
    """One sentence per option that is given and read by nothing."""
    for option in _OPTIONS:
        if _is_given(config, option.key) and not option.read(config.algorithm):
            yield _sentence(config, option.key, option.remedy)
    if config.optimizer.schedule == "constant":
        for key in _DECAY:
            if _is_given(config, key):
                yield _sentence(config, key, "use optimizer.schedule = 'linear' or 'cosine'")


def _sentence(config: RunConfig, key: str, remedy: str) -> str:
    return f"{key} = {_value(config, key)[0]!r} is read by nothing in this run: remove it, or {remedy}."


def _is_given(config: RunConfig, key: str) -> bool:
    value, default = _value(config, key)
    return value != default


def _value(config: RunConfig, key: str) -> tuple[object, object]:
    """What the configuration says, and the default."""
    *path, name = key.split(".")
    section = config
    for part in path:
        section = getattr(section, part)
    return getattr(section, name), type(section).model_fields[name].default
