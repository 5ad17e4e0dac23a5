"""One iteration's rollouts: draw problems, run the rollout function, keep the groups that the filter accepts.

Always true:

- a collector is where the data position lives: after `restore(state())` it draws the same problems;
- group ids are data positions and rollout ids follow from them, so no id comes twice in a run;
- every rollout that the filter rejects is counted in the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from vime_metrics import Count
from vime_train.plugins import PluginError, resolve
from vime_train.rollout._context import RolloutContext
from vime_train.rollout._groups import by_group
from vime_train.rollout._rewards import load_reward
from vime_train.rollout._samples import Problem, Rollout

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Engine


class RolloutError(RuntimeError):
    """A rollout function that did not return what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The rollouts of one iteration and what happened on the way."""

    rollouts: tuple[Rollout, ...]
    metrics: dict[str, Metric]


class Collector:
    """Draws problems in order and turns them into rollouts."""

    def __init__(self, config: RunConfig, source: DataSource) -> None:
        self._config = config
        self._source = source
        self._position = 0
        self._reward = load_reward(config.rollout, source)
        self._generate = cast(
            "Callable[[Engine, Sequence[Problem], RolloutContext], list[Rollout]]",
            _callable(config.rollout.function, "rollout.function"),
        )
        self._accepts: Callable[[Sequence[Rollout]], bool] | None = None
        if config.rollout.group_filter is not None:
            self._accepts = cast(
                "Callable[[Sequence[Rollout]], bool]", _callable(config.rollout.group_filter, "rollout.group_filter")
            )

    def state(self) -> dict[str, int]:
        """What a checkpoint must keep to draw the same problems again."""
        return {"position": self._position}

    def restore(self, state: dict[str, int]) -> None:
        """Go on from a state."""
        self._position = state["position"]

    def collect(self, engine: Engine) -> Collected:
        """Rollouts of `prompts_per_iteration` accepted groups, or of fewer when `max_draws` draws had no more."""
        wanted = self._config.rollout.prompts_per_iteration
        groups: list[list[Rollout]] = []
        generated = rejected = 0
        for _ in range(self._config.rollout.max_draws):
            drawn = self._draw(engine, wanted)
            generated += len(drawn)
            accepted = [group for group in drawn if self._accepts is None or self._accepts(group)]
            rejected += len(drawn) - len(accepted)
            groups += accepted
            if len(groups) >= wanted:
                break
        surplus = max(0, len(groups) - wanted)
        return Collected(
            rollouts=tuple(rollout for group in groups[:wanted] for rollout in group),
            metrics={
                "rollout/groups_generated": Count(generated),
                "rollout/groups_rejected": Count(rejected),
                "rollout/groups_surplus": Count(surplus),
            },
        )

    def _draw(self, engine: Engine, count: int) -> list[list[Rollout]]:
        problems = self._source.problems(count, seed=self._config.seed, start=self._position)
        context = RolloutContext(
            config=self._config, source=self._source, reward=self._reward, first_group_id=self._position
        )
        self._position += count
        rollouts = self._generate(engine, problems, context)
        groups = by_group(rollouts or [])
        expected = range(context.first_group_id, context.first_group_id + count)
        if sorted(groups) != list(expected):
            raise RolloutError(
                f"rollout function {self._config.rollout.function} returned rollouts of {len(groups)} groups for "
                f"{count} problems: it must return at least one rollout of each group id "
                f"{expected.start} to {expected.stop - 1}."
            )
        return [groups[group_id] for group_id in expected]


def _callable(path: str, key: str) -> Callable[..., object]:
    found = resolve(path, needed_for=key)
    if not callable(found):
        raise PluginError(f"{key} = {path!r} is not callable.")
    return cast("Callable[..., object]", found)
