"""Problems from a JSON Lines or Parquet file.

Always true:

- every epoch draws each training problem once, in an order that the seed and the epoch decide;
- prompts that are too long are left out and counted; a missing column or a repeated id is an error with file and line;
- without a file for a split, a tenth of the rows is set aside for it by a hash of the prompt.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from vime_train.data._columns import Columns, problems_of
from vime_train.data._errors import DataError
from vime_train.data._prompts import RETRY_TEXT, Prompts
from vime_train.data._rows import read_rows
from vime_train.data._scores import score_function
from vime_train.data._split import split_of
from vime_train.data._text_source import FiniteSource

if TYPE_CHECKING:
    from vime_train.data._protocol import Tokenizer
    from vime_train.rollout import Problem


class FileProblems(FiniteSource):
    """A data source over files; `data.options` are its arguments.

    Args:
        path: `.jsonl` or `.parquet`, whole or as `path@[start:stop]`.
        tokenizer: the model's.
        max_prompt_tokens: longer prompts are left out and counted.
        validation_path: file of the validation split.
        held_out_path: file of the held-out split.
        prompt_column: a text, or a list of `{"role", "content"}` messages.
        answer_column: the reference answer.
        id_column: an id, unique in the file; without it the line is the id.
        solution_column: a worked answer for supervised training.
        function_column: a name of `rollout.functions`, or null.
        reward_column: a name of `rollout.rewards`, or null.
        tools_column: JSON schemas of functions for the model's chat template, as a list or its text, or null. A
            `rollout.function` finds them in `problem.metadata["tools"]`, as text.
        chat: whether a text prompt is put into the model's chat template.
        system: a system message before every prompt.
        retry_text: what the user says after a wrong answer.
        score: "exact", "last_number", "math", "f1", "choice", or the import path of a function of answer and reference.
        shuffle: whether every epoch has its own order.

    Raises:
        DataError: with file and line.
    """

    def __init__(
        self,
        *,
        path: str,
        tokenizer: Tokenizer,
        max_prompt_tokens: int,
        validation_path: str = "",
        held_out_path: str = "",
        prompt_column: str = "prompt",
        answer_column: str = "answer",
        id_column: str = "",
        solution_column: str = "",
        function_column: str = "",
        reward_column: str = "",
        tools_column: str = "",
        chat: bool = True,
        system: str = "",
        retry_text: str = RETRY_TEXT,
        score: str = "last_number",
        shuffle: bool = True,
    ) -> None:
        self._score = score_function(score)
        prompts = Prompts(
            tokenizer=tokenizer, max_prompt_tokens=max_prompt_tokens, chat=chat, system=system, retry_text=retry_text
        )
        columns = Columns(
            prompt=prompt_column,
            answer=answer_column,
            problem_id=id_column,
            solution=solution_column,
            function=function_column,
            reward=reward_column,
            tools=tools_column,
        )
        rows = read_rows(path)
        splits: dict[str, list[Problem]] = {"train": [], "validation": [], "held_out": []}
        files = {"validation": validation_path, "held_out": held_out_path}
        for problem in problems_of(rows, columns, prompts):
            split = split_of(problem.prompt)
            splits["train" if files.get(split) else split].append(problem)
        for name, file in files.items():
            if file:
                splits[name] = problems_of(read_rows(file), columns, prompts)
        super().__init__(
            prompts,
            train=splits["train"],
            validation=splits["validation"],
            held_out=splits["held_out"],
            shuffle=shuffle,
        )
        if not self._train:
            raise DataError(
                f"{path}: none of {len(rows)} rows is left for training: {self.left_out} prompts are longer than "
                f"data.max_prompt_tokens = {max_prompt_tokens}, the others are in other splits."
            )

    def worked_example(
        self, problem: Problem, rng: random.Random, *, remaining_steps: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt, and the text of the solution column with the end of sequence."""
        if "solution" not in problem.metadata:
            raise DataError(
                f"supervised training needs a worked answer for {problem.problem_id}: name its column in "
                "data.options.solution_column, or set supervised.steps = 0."
            )
        return problem.prompt_tokens, self._ended(str(problem.metadata["solution"]))

    def score(self, problem: Problem, answer: str, *, finished: bool) -> float:
        """How far the answer is the reference, 1 when it is; 0 when it did not end."""
        return float(self._score(answer, problem.answer)) if finished else 0.0
