"""What is trained on: problems, worked answers, rollouts and their rewards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vime_train.config._section import Count, Fraction, Positive, Seconds, Section


class DataSection(Section):
    """Where problems come from: the import path of a data source, and what it is called with.

    `max_prompt_tokens` bounds the prompts: a source leaves longer ones out and counts them.
    """

    source: str = "vime_train.data.arithmetic:ArithmeticSums"
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    max_prompt_tokens: Positive = 64


class SupervisedSection(Section):
    """Supervised training on worked answers before the first rollout; `steps = 0` skips it."""

    steps: Count = 0
    batch_size: Positive = 32
    lr: Annotated[float, Field(gt=0)] = 4e-3
    warmup_steps: Count = 30
    decay_steps: Positive = 700


class RolloutSection(Section):
    """How prompts become rollouts.

    One iteration draws `prompts_per_iteration` prompts and runs `rollouts_per_prompt` rollouts of each.
    A rollout whose answer scores less than `solved_score` may try again, up to `max_attempts` answers; each answer is a
    training sample and all answers of a rollout share its id and its reward. The score of attempt k counts
    `retry_reward ** (k - 1)`. `max_retry_tokens` bounds what a retry adds to the conversation besides the answer.

    `group_filter` accepts or rejects a whole group of rollouts; up to `max_draws` times `over_sampling_prompts` prompts
    (unset: `prompts_per_iteration`) are drawn until enough groups are accepted. `drop_zero_variance` leaves groups
    without variance out of the batch, with the weights of the rest scaled as if they were in it. `sample_filter` takes
    an iteration's rollouts and returns those to train on. Functions are import paths, `package.module:name`.

    With `partial_rollout` the groups that an iteration has no use for are kept for the next, in a buffer: finished ones
    beyond `prompts_per_iteration`, and unfinished ones. An answer ends an iteration unfinished after
    `max_new_tokens_per_iteration` tokens, and goes on in the next, up to `max_new_tokens` in all. Groups in the buffer
    count as drawn. Finished groups are taken first in, first out, or as `buffer_order` puts them. `mask_off_policy`
    trains on the tokens of an iteration's own weights only; without it each token is trained on against the log-prob of
    the weights that sampled it.

    With `one_step_off_policy` the engines sample the next iteration while the trainers train this one, under weights
    that are one iteration older than otherwise.

    Rewards come from one of `group_reward`, `reward`, the server at `reward_url` (asked `reward_attempts` times, for
    `reward_concurrency` problems at once), or else from the data source's own score. A reward is a number, or a mapping
    of names to numbers: `reward_key` is the one to train on, and the others are reported as means, `reward/NAME`.

    `functions` and `rewards` are tables of functions by name, each called as `function` and `reward` are. A problem
    that names an entry is answered, or judged, by that one.
    """

    prompts_per_iteration: Positive = 32
    rollouts_per_prompt: Positive = 16
    max_attempts: Positive = 2
    retry_reward: Fraction = 0.5
    solved_score: float = 1.0
    max_retry_tokens: Count = 1
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Positive = 64
    function: str = "vime_train.rollout.attempts:generate_rollouts"
    functions: dict[str, str] = Field(default_factory=dict)
    reward: str | None = None
    rewards: dict[str, str] = Field(default_factory=dict)
    reward_key: str | None = None
    group_reward: str | None = None
    reward_url: Annotated[str, Field(pattern="^https?://")] | None = None
    reward_timeout_seconds: Seconds = 30.0
    reward_attempts: Positive = 5
    reward_concurrency: Positive = 16
    group_filter: str | None = None
    sample_filter: str | None = None
    max_draws: Positive = 1
    over_sampling_prompts: Positive | None = None
    partial_rollout: bool = False
    max_new_tokens_per_iteration: Positive | None = None
    buffer_order: str | None = None
    mask_off_policy: bool = False
    one_step_off_policy: bool = False
    drop_zero_variance: bool = True

    @property
    def is_off_policy(self) -> bool:
        """Whether an iteration may hold tokens of older weights than those that it is trained from."""
        return self.partial_rollout or self.one_step_off_policy
