"""One iteration's rollouts: draw problems, run the rollout function, keep the groups that the filter accepts.

Always true:

- a collector is where the data position lives: after `restore(state())` it draws the same problems;
- saved rollouts, loaded again, are the same rollouts, and nothing is generated for them;
- group ids are data positions and rollout ids follow from them, so no id comes twice in a run;
- every group that a filter rejects is counted in the metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vime_metrics import Count, Last
from vime_train.plugins import CONTRACTS, calling, load
from vime_train.rollout._check import RolloutError, check_problems, check_rollouts
from vime_train.rollout._context import RolloutContext
from vime_train.rollout._dump import load_rollouts, save_rollouts
from vime_train.rollout._groups import by_group
from vime_train.rollout._rewards import load_reward
from vime_train.rollout._samples import Rollout

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The rollouts of one iteration, what happened on the way, and whether the engines generated them now."""

    rollouts: tuple[Rollout, ...]
    metrics: dict[str, Metric]
    generated: bool = True


class Collector:
    """Draws problems in order and turns them into rollouts.

    Raises:
        PluginError: when made, if an import path leads nowhere or a signature does not fit.
        RewardError, RolloutError: from `collect`, if the user's code fails.
    """

    def __init__(self, config: RunConfig, source: DataSource) -> None:
        section = config.rollout
        self._config = config
        self._source = source
        self._position = 0
        self._iteration = 0
        self._reward = load_reward(section, source)
        self._generate = load(section.function, CONTRACTS["rollout.function"])
        self._accepts = section.group_filter and load(section.group_filter, CONTRACTS["rollout.group_filter"])
        self._select = section.sample_filter and load(section.sample_filter, CONTRACTS["rollout.sample_filter"])

    def state(self) -> dict[str, int]:
        """What a checkpoint must keep to draw the same problems again."""
        return {"position": self._position, "iteration": self._iteration}

    def restore(self, state: dict[str, int]) -> None:
        """Go on from a state."""
        self._position = state["position"]
        self._iteration = state["iteration"]

    def collect(self, engine: Engine) -> Collected:
        """Rollouts of `prompts_per_iteration` accepted groups, or of fewer when `max_draws` draws had no more."""
        self._iteration += 1
        name, debug = f"iteration-{self._iteration:06d}", self._config.debug
        if debug.load_rollouts is not None:
            return Collected(
                rollouts=tuple(load_rollouts(Path(debug.load_rollouts, name))), metrics={}, generated=False
            )
        collected = self._generate_rollouts(engine)
        if debug.save_rollouts:
            save_rollouts(collected.rollouts, Path(self._config.run_dir, "rollouts", name))
        return collected

    def _generate_rollouts(self, engine: Engine) -> Collected:
        wanted = self._config.rollout.prompts_per_iteration
        groups: list[list[Rollout]] = []
        generated = accepted = 0
        for _ in range(self._config.rollout.max_draws):
            drawn = self._draw(engine, wanted)
            kept = [group for group in drawn if self._is_accepted(group)]
            generated, accepted = generated + len(drawn), accepted + len(kept)
            groups += kept
            if len(groups) >= wanted:
                break
        rollouts = self._selected([rollout for group in groups[:wanted] for rollout in group])
        return Collected(
            rollouts=tuple(rollouts),
            metrics={
                "rollout/groups_generated": Count(generated),
                "rollout/groups_rejected": Count(generated - accepted),
                "rollout/groups_surplus": Count(max(0, accepted - wanted)),
                "data/prompts_left_out": Last(float(self._source.left_out)),
            },
        )

    def _draw(self, engine: Engine, count: int) -> list[list[Rollout]]:
        first = self._position
        data = self._config.data
        with calling(f"data.source = {data.source!r}", lambda: f"count={count}, start={first}", RolloutError):
            problems = self._source.problems(count, seed=self._config.seed, start=first)
        check_problems(problems, data.source, count=count, max_prompt_tokens=data.max_prompt_tokens)
        self._position += count
        context = RolloutContext(config=self._config, source=self._source, reward=self._reward, first_group_id=first)
        name = f"rollout.function = {self._config.rollout.function!r}"
        with calling(name, lambda: f"{count} problems, the first {problems[0].problem_id!r}", RolloutError):
            rollouts = self._generate(engine, problems, context)
        check_rollouts(rollouts, name, expected_groups=range(first, first + len(problems)))
        return list(by_group(rollouts).values())

    def _is_accepted(self, group: Sequence[Rollout]) -> bool:
        if not self._accepts:
            return True
        with calling(
            f"rollout.group_filter = {self._config.rollout.group_filter!r}",
            lambda: f"the rollouts of problem {group[0].problem.problem_id!r}",
            RolloutError,
        ):
            return bool(self._accepts(group))

    def _selected(self, rollouts: list[Rollout]) -> list[Rollout]:
        if not self._select:
            return rollouts
        name = f"rollout.sample_filter = {self._config.rollout.sample_filter!r}"
        with calling(name, lambda: f"{len(rollouts)} rollouts", RolloutError):
            selected = self._select(rollouts)
        check_rollouts(selected, name)
        return list(selected)
