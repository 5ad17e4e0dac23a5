"""What a user's rollout function may return. Always true of checked rollouts: every sample obeys its record."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from vime_train._errors import RunError
from vime_train.rollout._columns import column_problems, differing_columns
from vime_train.rollout._samples import Problem, Rollout, Sample


class RolloutError(RunError, RuntimeError):
    """A rollout function or filter that raised, or did not return what was asked for."""


def check_problems(problems: Sequence[Problem], source: str, *, count: int, max_prompt_tokens: int) -> None:
    """Refuse problems of a data source that cannot be answered within the run's limits.

    Raises:
        RolloutError: with the source, the problem, and what is wrong with it.
    """
    if len(problems) != count:
        raise RolloutError(f"data.source = {source!r} gave {len(problems)} problems when asked for {count}.")
    for problem in problems:
        length = len(problem.prompt_tokens)
        if not 0 < length <= max_prompt_tokens:
            raise RolloutError(
                f"data.source = {source!r} gave problem {problem.problem_id!r} with {length} prompt tokens: 1 to "
                f"data.max_prompt_tokens = {max_prompt_tokens} are needed; the source must leave others out."
            )


def check_rollouts(
    found: object, name: str, *, expected_groups: Collection[int] | None = None, may_be_unfinished: bool = False
) -> None:
    """Refuse anything but rollouts whose samples can be trained on; `name` is the function that returned them.

    With `may_be_unfinished` a later iteration may go on with a rollout.

    Raises:
        RolloutError: with the function, the rollout, and what is wrong with it.
    """
    if not isinstance(found, Sequence) or not all(isinstance(one, Rollout) for one in found):
        raise RolloutError(f"{name} returned {_short(found)}: a list of vime_train.rollout.Rollout is needed.")
    groups = {rollout.group_id for rollout in found}
    if expected_groups is not None and groups != set(expected_groups):
        missing = sorted(set(expected_groups) - groups)
        wrong = sorted(groups - set(expected_groups))
        raise RolloutError(
            f"{name} returned {len(found)} rollouts: group ids {missing[:5]} are missing, {wrong[:5]} were not asked "
            "for; every problem needs at least one rollout, its group id is context.group_ids[place]."
        )
    seen: set[int] = set()
    for rollout in found:
        if rollout.rollout_id in seen:
            raise RolloutError(
                f"{name} returned rollout_id {rollout.rollout_id} twice: every rollout needs its own id."
            )
        seen.add(rollout.rollout_id)
        if not rollout.is_finished and not may_be_unfinished:
            raise RolloutError(
                f"{name} returned rollout {rollout.rollout_id} with an aborted sample: nothing goes on with it. Set "
                "rollout.partial_rollout = true and rollout.max_new_tokens_per_iteration, or finish the answer."
            )
        for problem in _problems(rollout):
            raise RolloutError(f"{name} returned rollout {rollout.rollout_id} whose {problem}.")


def check_columns(rollouts: Sequence[Rollout], name: str) -> None:
    """Refuse an iteration whose samples do not all have the same columns of the user's.

    Raises:
        RolloutError: with the function, the rollout and the columns.
    """
    found = differing_columns(rollouts)
    if found is not None:
        rollout, names = found
        raise RolloutError(
            f"{name} returned rollout {rollout.rollout_id} with other columns than the rollouts before it: "
            f"{sorted(names)} are not on all samples. Every sample of an iteration needs the same."
        )


def check_resumed(found: Sequence[Rollout], resumed: Sequence[Rollout], name: str) -> None:
    """Refuse rollouts of resumed groups that are not those which were to be resumed, or that have lost tokens.

    Raises:
        RolloutError: with the function and the ids.
    """
    groups = {rollout.group_id for rollout in resumed}
    returned = {rollout.rollout_id: rollout for rollout in found if rollout.group_id in groups}
    if returned.keys() != {rollout.rollout_id for rollout in resumed}:
        raise RolloutError(
            f"{name} was given the unfinished rollouts {[rollout.rollout_id for rollout in resumed][:5]} in "
            f"context.resumed and returned {sorted(returned)[:5]} of their groups: it must go on with each of them, "
            "under its id, and with no other."
        )
    for rollout in resumed:
        begun, now = rollout.samples[-1].tokens, returned[rollout.rollout_id].samples[len(rollout.samples) - 1].tokens
        if now[: len(begun)] != begun:
            raise RolloutError(
                f"{name} returned rollout {rollout.rollout_id} of context.resumed without the {len(begun)} tokens "
                "that it had: an answer that goes on begins with what was answered before."
            )


def _problems(rollout: Rollout) -> list[str]:
    if not rollout.samples:
        return ["samples are empty: a rollout has at least one"]
    numbers = {
        "reward": rollout.reward,
        **{f"reward part {name!r}": part for name, part in rollout.reward_parts.items()},
    }
    found = [f"{name} is {one}: a finite number is needed" for name, one in numbers.items() if not math.isfinite(one)]
    for place, sample in enumerate(rollout.samples):
        found += [f"sample {place} {problem}" for problem in _sample_problems(sample, rollout)]
    return found


def _sample_problems(sample: Sample, rollout: Rollout) -> list[str]:
    length = sample.response_length
    found = []
    if not 0 < length < len(sample.tokens):
        found.append(
            f"has response_length {length} of {len(sample.tokens)} tokens: at least one is prompt, one response"
        )
    if len(sample.loss_mask) != length or len(sample.rollout_log_probs) != length:
        found.append(
            f"has {len(sample.loss_mask)} mask entries and {len(sample.rollout_log_probs)} log-probs for a response of "
            f"{length} tokens: one each is needed"
        )
    if len(sample.token_versions) != length:
        found.append(
            f"has {len(sample.weight_versions)} weight versions for a response of {length} tokens: one each is "
            "needed, or none where all are of weight_version"
        )
    found += column_problems(sample)
    if (sample.rollout_id, sample.group_id) != (rollout.rollout_id, rollout.group_id):
        found.append("has other ids than its rollout")
    return found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
