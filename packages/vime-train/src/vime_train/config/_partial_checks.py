"""Launch checks of over-sampling and of rollouts that take several iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config._sections_data import RolloutSection


def partial_problems(section: RolloutSection) -> Iterator[str]:
    """One sentence per way in which over-sampling and partial rollouts cannot work, or would do nothing."""
    yield from _over_sampling(section)
    yield from _allowance(section)
    yield from _buffer(section)
    yield from _order(section)
    yield from _mask(section)


def _over_sampling(section: RolloutSection) -> Iterator[str]:
    drawn, wanted = section.over_sampling_prompts, section.prompts_per_iteration
    if drawn is None:
        return
    if drawn < wanted:
        yield (
            f"rollout.over_sampling_prompts = {drawn} is less than rollout.prompts_per_iteration = {wanted}: draw at "
            "least as many as are wanted."
        )
    if drawn > wanted and section.group_filter is None and not section.partial_rollout:
        yield (
            f"rollout.over_sampling_prompts = {drawn}: without rollout.group_filter every group is accepted, so "
            f"{drawn - wanted} of them would be generated and thrown away in every iteration. Set "
            "rollout.partial_rollout = true, or remove it."
        )


def _allowance(section: RolloutSection) -> Iterator[str]:
    allowance = section.max_new_tokens_per_iteration
    if allowance is None:
        return
    if not section.partial_rollout:
        yield (
            f"rollout.max_new_tokens_per_iteration = {allowance} needs rollout.partial_rollout = true: answers that it "
            "cuts have to be kept."
        )
    if allowance >= section.max_new_tokens:
        yield (
            f"rollout.max_new_tokens_per_iteration = {allowance} cuts nothing: it must be below "
            f"rollout.max_new_tokens = {section.max_new_tokens}."
        )
    if section.group_reward is not None:
        yield (
            f"rollout.group_reward = {section.group_reward!r} judges all answers to a problem together, but with "
            "rollout.max_new_tokens_per_iteration they end in different iterations: use rollout.reward, or remove one."
        )


def _buffer(section: RolloutSection) -> Iterator[str]:
    over = section.over_sampling_prompts is not None and section.over_sampling_prompts > section.prompts_per_iteration
    several = section.max_draws > 1 and section.group_filter is not None
    if section.partial_rollout and section.max_new_tokens_per_iteration is None and not over and not several:
        yield (
            "rollout.partial_rollout = true keeps nothing: set rollout.max_new_tokens_per_iteration, or "
            f"rollout.over_sampling_prompts above rollout.prompts_per_iteration = {section.prompts_per_iteration}."
        )


def _order(section: RolloutSection) -> Iterator[str]:
    if section.buffer_order is not None and not section.partial_rollout:
        yield (
            f"rollout.buffer_order = {section.buffer_order!r} is read by nothing in this run: without "
            "rollout.partial_rollout no group waits."
        )


def _mask(section: RolloutSection) -> Iterator[str]:
    if not section.mask_off_policy:
        return
    if not section.partial_rollout:
        yield (
            "rollout.mask_off_policy = true is read by nothing in this run: all tokens of an iteration are of the same "
            "weights without rollout.partial_rollout."
        )
    elif section.max_new_tokens_per_iteration is None:
        yield (
            "rollout.mask_off_policy = true: without rollout.max_new_tokens_per_iteration only finished groups wait, "
            "and all of their tokens would be masked. Set it, or remove rollout.mask_off_policy."
        )
