"""From the rows of a file to problems, by the names of the columns.

Always true: a column that is missing, empty, holds the wrong kind of value or repeats an id is a `DataError` with its
line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vime_train.data._errors import DataError
from vime_train.plugins import calling

if TYPE_CHECKING:
    from vime_train.data._prompts import Prompts
    from vime_train.data._rows import Row
    from vime_train.rollout import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns; an empty name means that there is no such column."""

    prompt: str
    answer: str
    problem_id: str = ""
    solution: str = ""
    function: str = ""
    reward: str = ""
    tools: str = ""


def problems_of(rows: Sequence[Row], columns: Columns, prompts: Prompts) -> list[Problem]:
    """The problems of the rows, without those whose prompt is too long."""
    place_of: dict[str, str] = {}
    problems = []
    for row in rows:
        problem_id = str(_value(row, columns.problem_id)) if columns.problem_id else row.place
        if problem_id in place_of:
            raise DataError(f"{row.place}: id {problem_id!r} is already that of {place_of[problem_id]}.")
        place_of[problem_id] = row.place
        with calling(f"{row.place}: the prompt", error=DataError):
            problem = prompts.problem(
                problem_id,
                _prompt(row, columns.prompt),
                _answer(row, columns.answer),
                _solution(row, columns.solution),
                tools=_tools(row, columns.tools),
            )
        if problem is None:
            continue
        if not problem.prompt_tokens:
            raise DataError(f"{row.place}: the prompt in column {columns.prompt!r} has no tokens: leave the row out.")
        function, reward = _name(row, columns.function), _name(row, columns.reward)
        problems.append(replace(problem, function=function, reward=reward))
    return problems


def _value(row: Row, column: str) -> Any:
    if column not in row.columns:
        raise DataError(f"{row.place}: no column {column!r}; it has {', '.join(row.columns)}. Name it in data.options.")
    return row.columns[column]


def _prompt(row: Row, column: str) -> Any:
    value = _value(row, column)
    if isinstance(value, str) or _is_conversation(value):
        return value
    raise _wrong(row, column, value, 'a text or a list of {"role", "content"} messages')


def _answer(row: Row, column: str) -> str:
    value = _value(row, column)
    if isinstance(value, str | int | float):
        return str(value)
    raise _wrong(row, column, value, "a text or a number")


def _solution(row: Row, column: str) -> dict[str, str | int | float | bool]:
    if not column:
        return {}
    value = _value(row, column)
    if isinstance(value, str):
        return {"solution": value}
    raise _wrong(row, column, value, "a text")


def _name(row: Row, column: str) -> str:
    """What the row names, empty where it names nothing."""
    value = _value(row, column) if column else None
    if value is None or isinstance(value, str):
        return value or ""
    raise _wrong(row, column, value, "a name, or null")


def _tools(row: Row, column: str) -> list[dict[str, Any]]:
    """The schemas of functions that the model may call: a list, JSON text of one, or null."""
    value = _value(row, column) if column else None
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except json.JSONDecodeError:
            found = value
    if found is None:
        return []
    if isinstance(found, list) and all(isinstance(tool, dict) for tool in found):
        return found
    raise _wrong(row, column, value, "a list of JSON schemas, as JSON or as its text, or null")


def _wrong(row: Row, column: str, value: object, needed: str) -> DataError:
    return DataError(f"{row.place}: column {column!r} holds {value!r}; {needed} is needed.")


def _is_conversation(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, dict) and {"role", "content"} <= message.keys() for message in value)
    )
