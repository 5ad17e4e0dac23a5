"""Rows that name the function which answers them, or the one that judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vime_train.data import CharTokenizer, DataError
from vime_train.data.files import FileProblems

ROWS = [
    {"prompt": "1+1=", "answer": 2, "how": "tool", "judge": None},
    {"prompt": "2+2=", "answer": 4, "how": None, "judge": "code"},
    {"prompt": "3+3=", "answer": 6, "how": "", "judge": "code"},
]


def problems_of(path: Path, rows: list[dict[str, object]]) -> dict[str, tuple[str, str]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = FileProblems(
        path=str(path),
        tokenizer=CharTokenizer(alphabet="0123456789+="),
        max_prompt_tokens=10,
        chat=False,
        function_column="how",
        reward_column="judge",
    )
    found = [*source.problems(source.num_problems, seed=0, start=0), *source.validation(9), *source.held_out(9)]
    return {problem.prompt: (problem.function, problem.reward) for problem in found}


def test_a_row_names_its_function_and_its_judge(tmp_path: Path) -> None:
    expected = {"1+1=": ("tool", ""), "2+2=": ("", "code"), "3+3=": ("", "code")}
    assert problems_of(tmp_path / "a.jsonl", ROWS) == expected


@pytest.mark.parametrize(("column", "value"), [("how", 7), ("judge", ["code"])])
def test_a_name_that_is_no_text_is_told_with_its_line(tmp_path: Path, column: str, value: object) -> None:
    rows = [*ROWS, {"prompt": "4+4=", "answer": 8, "how": None, "judge": None, column: value}]
    with pytest.raises(DataError, match=rf"a\.jsonl:4: column '{column}' holds .*; a name, or null is needed"):
        problems_of(tmp_path / "a.jsonl", rows)


def test_a_missing_column_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: no column 'how'"):
        problems_of(tmp_path / "a.jsonl", [{"prompt": "1+1=", "answer": 2}])
