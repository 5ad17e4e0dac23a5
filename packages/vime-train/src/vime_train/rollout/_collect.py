"""One iteration's rollouts: draw problems, run the rollout function, keep the groups that the filter accepts.

Always true:

- a collector is where the data position lives: after `restore(state())` it draws the same problems;
- saved rollouts, loaded again, are the same rollouts, and nothing is generated for them;
- group ids are data positions and rollout ids follow from them, so no id comes twice in a run;
- every group that a filter rejects is counted in the metrics;
- with `rollout.partial_rollout` every other group is handed out in the end: what an iteration leaves is in the buffer,
  in order;
- a `collect` that raises leaves the collector as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vime_metrics import Count, Last
from vime_train.plugins import CONTRACTS, calling, load
from vime_train.rollout._buffer import GroupBuffer, is_finished
from vime_train.rollout._check import RolloutError, check_columns, check_problems, check_rollouts
from vime_train.rollout._context import RolloutContext
from vime_train.rollout._dump import load_rollouts, save_rollouts
from vime_train.rollout._functions import RolloutFunctions
from vime_train.rollout._names import check_names
from vime_train.rollout._off_policy import mask_off_policy, off_policy_share, staleness
from vime_train.rollout._order import load_order
from vime_train.rollout._rewards import load_reward
from vime_train.rollout._samples import Problem, Rollout

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The rollouts of one iteration, and what happened on the way.

    `weight_version` is what the engines held while they generated them; None where they generated nothing.
    """

    rollouts: tuple[Rollout, ...]
    metrics: Mapping[str, Metric | float]
    weight_version: int | None


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
        self.buffer = GroupBuffer()
        self._reward = load_reward(section, source)
        self._functions = RolloutFunctions(section)
        self._order = load_order(section)
        self._accepts = section.group_filter and load(section.group_filter, CONTRACTS["rollout.group_filter"])
        self._select = section.sample_filter and load(section.sample_filter, CONTRACTS["rollout.sample_filter"])

    def state(self) -> dict[str, int]:
        """What a checkpoint must keep to draw the same problems again."""
        return {"position": self._position, "iteration": self._iteration}

    def restore(self, state: dict[str, int]) -> None:
        """Go on from a state."""
        self._position = state["position"]
        self._iteration = state["iteration"]

    def save_buffer(self, directory: Path) -> None:
        """Write the groups that wait, where the run keeps any."""
        if self._config.rollout.partial_rollout:
            self.buffer.save(directory)

    def load_buffer(self, directory: Path) -> None:
        """Take up what `save_buffer` wrote. Raises `DumpError` if it is missing or damaged."""
        if self._config.rollout.partial_rollout:
            self.buffer = GroupBuffer.load(directory)

    def collect(self, engine: Engine, *, weight_version: int | None = None) -> Collected:
        """Rollouts of `prompts_per_iteration` accepted groups, or of fewer when `max_draws` draws had no more.

        `weight_version` is what the engine holds: the iterations before this one, unless told otherwise.
        """
        before, waiting = self.state(), self.buffer
        try:
            return self._collect(engine, self._iteration if weight_version is None else weight_version)
        except BaseException:
            self.restore(before)
            self.buffer = waiting
            raise

    def _collect(self, engine: Engine, version: int) -> Collected:
        self._iteration += 1
        name, debug = f"iteration-{self._iteration:06d}", self._config.debug
        if debug.load_rollouts is not None:
            saved = load_rollouts(Path(debug.load_rollouts, name))
            return Collected(rollouts=tuple(saved), metrics={}, weight_version=None)
        collected = self._generate_rollouts(engine, version)
        if debug.save_rollouts:
            save_rollouts(collected.rollouts, Path(self._config.run_dir, "rollouts", name))
        return collected

    def _generate_rollouts(self, engine: Engine, version: int) -> Collected:
        section = self._config.rollout
        buffer, metrics = self._filled(engine)
        taken, left = buffer.take(section.prompts_per_iteration, order=self._order)
        rollouts = self._selected([rollout for group in taken for rollout in group])
        check_columns(rollouts, f"rollout.function = {section.function!r}")
        metrics |= {
            "rollout/groups_surplus": Count(left.ready),
            "data/prompts_left_out": Last(float(self._source.left_out)),
        }
        if section.partial_rollout:
            metrics["rollout/groups_buffered"] = Last(float(len(left.groups)))
            self.buffer = left
        if section.is_off_policy:
            trained_under = self._iteration - 1
            metrics["rollout/off_policy_tokens"] = off_policy_share(rollouts, trained_under)
            metrics["rollout/staleness"] = staleness(rollouts, trained_under)
        if section.mask_off_policy:
            rollouts = mask_off_policy(rollouts, version)
        return Collected(rollouts=tuple(rollouts), metrics=metrics, weight_version=version)

    def _filled(self, engine: Engine) -> tuple[GroupBuffer, dict[str, Metric]]:
        """The buffer, filled until it has the finished groups that are wanted; groups that waited count as drawn."""
        section, buffer = self._config.rollout, self.buffer
        resumed, waiting = buffer.unfinished, len(buffer.groups)
        per_draw = section.over_sampling_prompts or section.prompts_per_iteration
        room = per_draw * section.max_draws - waiting
        drawn = rejected = 0
        for draw in range(section.max_draws):
            count = min(per_draw if draw else max(0, per_draw - waiting), room - drawn)
            found = self._draw(engine, count, () if draw else resumed)
            buffer = buffer.merged(found)
            refused = self._refused(buffer, {rollout.group_id for rollout in found})
            buffer = buffer.without(refused)
            drawn, rejected = drawn + count, rejected + len(refused)
            if buffer.ready >= section.prompts_per_iteration:
                break
        counts: dict[str, Metric] = {
            "rollout/groups_generated": Count(drawn),
            "rollout/groups_rejected": Count(rejected),
        }
        if section.partial_rollout:
            counts["rollout/rollouts_resumed"] = Count(len(resumed))
        return buffer, counts

    def _draw(self, engine: Engine, count: int, resumed: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts of the next `count` problems, and the resumed ones with what was added to them."""
        if count == 0 and not resumed:
            return []
        first, problems = self._position, self._next_problems(count)
        context = RolloutContext(
            config=self._config,
            source=self._source,
            reward=self._reward,
            group_ids=tuple(range(first, first + count)),
            resumed=tuple(resumed),
        )
        return self._functions.generate(engine, problems, context)

    def _next_problems(self, count: int) -> list[Problem]:
        if count == 0:
            return []
        first, data = self._position, self._config.data
        with calling(f"data.source = {data.source!r}", lambda: f"count={count}, start={first}", RolloutError):
            problems = self._source.problems(count, seed=self._config.seed, start=first)
        check_problems(problems, data.source, count=count, max_prompt_tokens=data.max_prompt_tokens)
        check_names(problems, self._config.rollout)
        self._position += count
        return problems

    def _refused(self, buffer: GroupBuffer, touched: Collection[int]) -> set[int]:
        """The groups that have just finished and that the group filter rejects."""
        just_finished = [group for group in buffer.groups if group[0].group_id in touched and is_finished(group)]
        return {group[0].group_id for group in just_finished if not self._is_accepted(group)}

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
