"""Sums of labelled digits: a task that a model of 130,000 parameters can learn, and whose answers can be checked.

A problem is `a7b1c1d4=`. A worked answer keeps a running total, `a7,7b1,8c1,9d4,13#13`; a lazy one only estimates,
`#10`. The reward is 1 when exactly one `#` is followed by the right number and the answer ends by itself.

Always true: the split of a problem depends on its prompt alone, so no problem is ever in two splits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from vime_train.data._char_tokenizer import CharTokenizer
from vime_train.data._protocol import Tokenizer
from vime_train.data._split import Split, split_of
from vime_train.rollout import Problem

LABELS = "abcdefghij"
ALPHABET = "0123456789" + LABELS + ",=#?"
RETRY_MARKER = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticSums:
    """The data source of the shipped `arithmetic.toml`.

    `lazy_steps` is the number of supervised steps at the end in which the teacher only estimates, the more often the
    longer the problem; `retry_share` is the share of supervised examples that answer after a wrong first answer.
    """

    min_terms: int = 2
    max_terms: int = 8
    largest_term: int = 9
    lazy_steps: int = 50
    retry_share: float = 0.25
    max_prompt_tokens: int = 64
    tokenizer: Tokenizer = field(default_factory=lambda: CharTokenizer(alphabet=ALPHABET))

    def __post_init__(self) -> None:
        if not 1 <= self.min_terms <= self.max_terms <= len(LABELS):
            raise ValueError(
                f"min_terms={self.min_terms} and max_terms={self.max_terms} must satisfy "
                f"1 <= min_terms <= max_terms <= {len(LABELS)}."
            )
        if not 2 <= self.largest_term <= 9:
            raise ValueError(f"largest_term must be a digit from 2 to 9, got {self.largest_term}.")
        if 2 * self.max_terms + 1 > self.max_prompt_tokens:
            raise ValueError(
                f"max_terms={self.max_terms} makes prompts of {2 * self.max_terms + 1} tokens, more than "
                f"data.max_prompt_tokens = {self.max_prompt_tokens}: raise it or lower max_terms."
            )
        if not self._distinct(1, "train"):
            raise ValueError(f"no problem of {self} is for training: allow more terms or larger ones.")

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The end of sequence."""
        return (self.tokenizer.eos_token_id,)

    @property
    def left_out(self) -> int:
        """No prompt is too long: that is checked when the source is made."""
        return 0

    @property
    def num_problems(self) -> None:
        """There is no end of them."""
        return None

    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        """Training problems `start` to `start + count - 1` of the endless sequence of `seed`."""
        return [self._training_problem(seed, index) for index in range(start, start + count)]

    def validation(self, count: int) -> list[Problem]:
        """Problems for tuning."""
        return self._distinct(count, "validation")

    def held_out(self, count: int) -> list[Problem]:
        """Problems for the reported figures."""
        return self._distinct(count, "held_out")

    def worked_example(
        self, problem: Problem, rng: random.Random, *, remaining_steps: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and answer; some prompts hold a wrong first answer and the retry marker."""
        terms = _terms(problem)
        lazy = remaining_steps < self.lazy_steps and rng.random() < min(0.9, 0.25 * (len(terms) - 1))
        prompt = problem.prompt_tokens
        if rng.random() < self.retry_share:
            prompt = self.retry_prompt(prompt, self._answer_tokens(f"#{_wrong_estimate(terms, rng)}"))
            lazy = False
        return prompt, self._answer_tokens(_estimate(terms) if lazy else _worked(terms))

    def retry_prompt(self, prompt_tokens: tuple[int, ...], answer_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Prompt, first answer and the retry marker."""
        return prompt_tokens + answer_tokens + self.tokenizer.encode(RETRY_MARKER)

    def score(self, problem: Problem, answer: str, *, finished: bool) -> float:
        """1 when the answer ended and the number after its only `#` is right, else 0."""
        parts = answer.split("#")
        return float(finished and len(parts) == 2 and parts[1] == problem.answer)

    def _answer_tokens(self, text: str) -> tuple[int, ...]:
        return (*self.tokenizer.encode(text), self.tokenizer.eos_token_id)

    def _problem(self, rng: random.Random) -> Problem:
        terms = [rng.randint(1, self.largest_term) for _ in range(rng.randint(self.min_terms, self.max_terms))]
        prompt = "".join(f"{LABELS[place]}{term}" for place, term in enumerate(terms)) + "="
        return Problem(
            problem_id=prompt,
            prompt=prompt,
            answer=str(sum(terms)),
            prompt_tokens=self.tokenizer.encode(prompt),
            metadata={"terms": len(terms)},
        )

    def _training_problem(self, seed: int, index: int) -> Problem:
        rng = random.Random(f"train-{seed}-{index}")
        problem = self._problem(rng)
        while split_of(problem.prompt) != "train":
            problem = self._problem(rng)
        return problem

    def _distinct(self, count: int, split: Split) -> list[Problem]:
        rng = random.Random(split)
        found: dict[str, Problem] = {}
        for _ in range(50 * count + 1000):
            if len(found) == count:
                break
            problem = self._problem(rng)
            if split_of(problem.prompt) == split:
                found.setdefault(problem.problem_id, problem)
        return list(found.values())


def _terms(problem: Problem) -> list[int]:
    return [int(digit) for digit in problem.prompt[1:-1:2]]


def _worked(terms: list[int]) -> str:
    total, text = 0, ""
    for place, term in enumerate(terms):
        total += term
        text += f"{LABELS[place]}{term},{total}"
    return f"{text}#{total}"


def _estimate(terms: list[int]) -> str:
    return f"#{(sum(terms) + 5) // 10 * 10}"


def _wrong_estimate(terms: list[int], rng: random.Random) -> int:
    total = sum(terms)
    return rng.choice([guess for guess in range(max(1, total - 9), total + 10) if guess != total])
