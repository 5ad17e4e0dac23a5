"""Tools in a file's rows: in the model's chat template, or an error; never left out in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vime_train.data import CharTokenizer, DataError, HfTokenizer
from vime_train.data.files import FileProblems

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .?+={}[]<>:,_\"'\n/|"
TELLS = "{% if tools %}tools: {{ tools | tojson }} {% endif %}"
SAYS = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    """A Hugging Face tokenizer with a chat template, saved and loaded again."""

    def make(template: str) -> HfTokenizer:
        directory = tmp_path / "tokenizer"
        CharTokenizer(alphabet=ALPHABET, vocab_size=128).save(str(directory))
        path = directory / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
        return HfTokenizer(str(directory))

    return make


def source(tmp_path: Path, tokenizer: object, tools: object, **options: Any) -> FileProblems:
    path = tmp_path / "a.jsonl"
    rows = [{"prompt": f"{place} + 1?", "answer": place + 1, "tools": tools} for place in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given: dict[str, Any] = {"max_prompt_tokens": 400, "tools_column": "tools", **options}
    return FileProblems(path=str(path), tokenizer=tokenizer, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("tools", [[ADD], json.dumps([ADD])], ids=["a list", "its text"])
def test_tools_stand_in_the_prompt_and_with_the_problem(tmp_path: Path, tokenizer: Any, tools: object) -> None:
    found = source(tmp_path, tokenizer(TELLS + SAYS), tools)
    for problem in found.problems(5, seed=0, start=0):
        assert problem.prompt.startswith(f"tools: {json.dumps([ADD])} ")
        assert problem.prompt.endswith(" + 1?")
        assert json.loads(str(problem.metadata["tools"])) == [ADD]
        assert found.tokenizer.decode(problem.prompt_tokens) == problem.prompt


@pytest.mark.parametrize("tools", [None, [], "[]"])
def test_a_row_may_have_none(tmp_path: Path, tokenizer: Any, tools: object) -> None:
    problem = source(tmp_path, tokenizer(TELLS + SAYS), tools).problems(1, seed=0, start=0)[0]
    assert problem.prompt[0].isdigit()
    assert "tools" not in problem.metadata


def test_a_template_that_leaves_them_out_is_told_with_the_row(tmp_path: Path, tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*the model's chat template leaves tools out"):
        source(tmp_path, tokenizer(SAYS), [ADD])


def test_a_prompt_without_a_template_has_no_place_for_them(tmp_path: Path, tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*no place for tools: set chat = true"):
        source(tmp_path, tokenizer(TELLS + SAYS), [ADD], chat=False)
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*a character tokenizer has no chat template"):
        source(tmp_path, CharTokenizer(alphabet=ALPHABET, vocab_size=128), [ADD])


@pytest.mark.parametrize("tools", [7, "add", ["add"], {"name": "add"}, '{"name": "add"}'])
def test_what_is_no_list_of_schemas_is_told_with_its_row(tmp_path: Path, tokenizer: Any, tools: object) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: column 'tools' holds .*; a list of JSON schemas"):
        source(tmp_path, tokenizer(TELLS + SAYS), tools)
