"""The record of a rollout and of a training sample. Plain values, no torch.

Always true of a sample:

- `tokens` is prompt and response; the response is its last `response_length` tokens;
- `loss_mask` and `rollout_log_probs` have one entry per response token; a masked token has mask 0;
- samples of one rollout share `rollout_id`, `group_id` and `reward`; rollouts of one prompt share `group_id`;
- a sample is `aborted` when its answer goes on in a later iteration; such a sample is kept, and never trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["completed", "truncated", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One task instance: the prompt's tokens, what a reward needs to judge an answer, and where it came from.

    `function` and `reward` name an entry of `rollout.functions` and `rollout.rewards`; empty, those of all are used.
    """

    problem_id: str
    prompt: str
    answer: str
    prompt_tokens: tuple[int, ...]
    metadata: dict[str, str | int | float | bool] = field(default_factory=dict)
    function: str = ""
    reward: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One token sequence with one response span, ready to be trained on."""

    tokens: tuple[int, ...]
    response_length: int
    loss_mask: tuple[int, ...]
    rollout_log_probs: tuple[float, ...]
    rollout_id: int
    group_id: int
    reward: float
    status: Status
    weight_version: int
    """The version of the weights that sampled the last response token."""
    weight_versions: tuple[int, ...] = ()
    """The version behind each response token; empty where all are of `weight_version`."""
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """A user's own: by name one number per response token, for hooks and dumps. Every sample has the same names."""

    @property
    def token_versions(self) -> tuple[int, ...]:
        """The version of the weights behind each response token."""
        return self.weight_versions or (self.weight_version,) * self.response_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One execution of a prompt: its samples (one or more, in order), its reward, and what it was asked.

    `reward_parts` are what its judge measured beside the reward, by name.
    """

    rollout_id: int
    group_id: int
    problem: Problem
    samples: tuple[Sample, ...]
    reward: float
    reward_parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """Whether every answer has ended, by itself or at the limit."""
        return all(sample.status != "aborted" for sample in self.samples)
