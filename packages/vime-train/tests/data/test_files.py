"""File sources: formats, columns, slices, epochs, filters; and files that are damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import DataSection
from vime_train.data import CharTokenizer, DataError, load_source, make_model
from vime_train.data._epochs import epoch_index
from vime_train.data._rows import read_rows
from vime_train.data.files import FileProblems
from vime_train.plugins import PluginError

TOKENIZER = CharTokenizer(alphabet="abcdefghijklmnopqrstuvwxyz0123456789 .?+=T", vocab_size=64)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sums(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{place}+1=", "answer": place + 1, "id": f"s{place}", "steps": f"{place + 1}"}
        for place in range(count)
    ]


def source(path: Path | str, **options: Any) -> FileProblems:
    return FileProblems(path=str(path), **{"tokenizer": TOKENIZER, "max_prompt_tokens": 50, "chat": False} | options)


def prompts(problems: list[Any]) -> list[str]:
    return [problem.prompt for problem in problems]


def test_jsonl_and_parquet_are_the_same(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    write(tmp_path / "a.jsonl", sums(40))
    parquet.write_table(pyarrow.Table.from_pylist(sums(40)), tmp_path / "a.parquet")
    one, two = source(tmp_path / "a.jsonl", id_column="id"), source(tmp_path / "a.parquet", id_column="id")
    assert one.problems(60, seed=1, start=0) == two.problems(60, seed=1, start=0)
    assert one.held_out(9) == two.held_out(9)


def test_every_row_is_in_one_split(tmp_path: Path) -> None:
    found = source(write(tmp_path / "a.jsonl", sums(100)))
    held_out, validation = prompts(found.held_out(100)), prompts(found.validation(100))
    train = prompts(found.problems(100 - len(held_out) - len(validation), seed=0, start=0))
    assert len(held_out) > 3
    assert len(validation) > 3
    assert sorted(held_out + validation + train) == sorted(row["prompt"] for row in sums(100))


def test_splits_may_have_files_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", sums(100))
    held_out = write(tmp_path / "test.jsonl", [{"prompt": "what?", "answer": "a"}])
    found = source(path, held_out_path=str(held_out))
    assert prompts(found.held_out(10)) == ["what?"]
    train = set(prompts(found.problems(200, seed=0, start=0)))
    assert len(train) + len(found.validation(100)) == 100


def test_a_problem_of_another_splits_file_is_not_trained_on(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", sums(60))
    held_out = write(tmp_path / "test.jsonl", sums(10))
    found = source(path, held_out_path=str(held_out), validation_path=str(held_out))
    train = set(prompts(found.problems(100, seed=0, start=0)))
    assert len(train) == 50
    assert not train & set(prompts(found.held_out(10)))


@given(size=st.integers(1, 30), seed=st.integers(0, 1000), epoch=st.integers(0, 5))
def test_every_epoch_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    order = [
        epoch_index(place, size=size, seed=seed, shuffle=True) for place in range(epoch * size, (epoch + 1) * size)
    ]
    assert sorted(order) == list(range(size))


def test_epochs_differ_and_repeat_with_their_seed(tmp_path: Path) -> None:
    """A request larger than the data goes around as often as needed."""
    found = source(write(tmp_path / "a.jsonl", sums(30)))
    size = len(set(prompts(found.problems(300, seed=0, start=0))))
    first, second = found.problems(size, seed=0, start=0), found.problems(size, seed=0, start=size)
    assert first != second
    assert sorted(prompts(first)) == sorted(prompts(second))
    assert first == source(tmp_path / "a.jsonl").problems(size, seed=0, start=0)
    assert first != found.problems(size, seed=1, start=0)


def test_without_shuffling_the_order_is_the_files(tmp_path: Path) -> None:
    found = source(write(tmp_path / "a.jsonl", sums(30)), shuffle=False)
    numbers = [int(prompt.split("+")[0]) for prompt in prompts(found.problems(10, seed=5, start=0))]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ("[2:4]", [2, 3]),
        ("[:2]", [0, 1]),
        ("[8:]", [8, 9]),
        ("[-2:]", [8, 9]),
        ("[:-8]", [0, 1]),
        ("[:]", list(range(10))),
    ],
)
def test_slices_are_pythons(tmp_path: Path, cut: str, expected: list[int]) -> None:
    path = write(tmp_path / "a.jsonl", sums(10))
    assert [row.columns["answer"] - 1 for row in read_rows(f"{path}@{cut}")] == expected


def test_an_empty_slice_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sums(3))
    with pytest.raises(DataError, match=r"a\.jsonl@\[5:9\]: there is no row in it"):
        read_rows(f"{path}@[5:9]")


def test_long_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [*sums(20), {"prompt": "a" * 51, "answer": "b"}, {"prompt": "a" * 50, "answer": "b"}]
    found = source(write(tmp_path / "a.jsonl", rows))
    assert found.left_out == 1
    everything = (
        prompts(found.problems(100, seed=0, start=0)) + prompts(found.held_out(9)) + prompts(found.validation(9))
    )
    assert "a" * 50 in everything
    assert "a" * 51 not in everything


def test_messages_and_system_go_through_the_template(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"say {place}"}], "answer": "a"} for place in range(30)]
    found = source(write(tmp_path / "a.jsonl", rows), chat=True, system="be short. ")
    assert found.problems(1, seed=0, start=0)[0].prompt.startswith("be short. say ")


def test_a_text_prompt_is_a_users_message_in_a_chat(tmp_path: Path) -> None:
    class Chat(CharTokenizer):
        def chat_prompt(self, messages: Any, *, tools: Any = ()) -> str:
            return "".join(f"{one['role'][0]} {one['content']}." for one in messages) + "a "

    chat = Chat(alphabet=TOKENIZER.alphabet + "\u241f")
    found = source(write(tmp_path / "a.jsonl", sums(30)), tokenizer=chat, chat=True, retry_text="no")
    problem = found.problems(1, seed=0, start=0)[0]
    assert problem.prompt.startswith("u ")
    assert problem.prompt.endswith("=.a ")
    retry = found.retry_prompt(problem.prompt_tokens, chat.encode("7"))
    assert chat.decode(retry) == f"{problem.prompt}7.u no.a "


def test_without_a_chat_a_retry_is_its_text(tmp_path: Path) -> None:
    found = source(write(tmp_path / "a.jsonl", sums(30)), retry_text=" no ")
    assert TOKENIZER.decode(found.retry_prompt(TOKENIZER.encode("1+1="), (*TOKENIZER.encode("3"), 1))) == "1+1=3 no "


def test_scores(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sums(30))
    problem = source(path).problems(1, seed=0, start=0)[0]
    by_number, exact = source(path), source(path, score="exact")
    answer = f"it is {problem.answer}."
    assert by_number.score(problem, answer, finished=True) == 1.0
    assert by_number.score(problem, answer, finished=False) == 0.0
    assert by_number.score(problem, "no idea", finished=True) == 0.0
    assert exact.score(problem, answer, finished=True) == 0.0
    assert exact.score(problem, f" {problem.answer} ", finished=True) == 1.0


def test_mathematically_equal_answers_score(tmp_path: Path) -> None:
    found = source(
        write(tmp_path / "a.jsonl", [{"prompt": f"half {place}", "answer": "1/2"} for place in range(20)]), score="math"
    )
    problem = found.problems(1, seed=0, start=0)[0]
    assert found.score(problem, r"so it is \boxed{\frac{1}{2}}.", finished=True) == 1.0
    assert found.score(problem, "0.5", finished=True) == 1.0
    assert found.score(problem, "0.25", finished=True) == 0.0
    assert found.score(problem, "no idea", finished=True) == 0.0


def test_a_worked_answer_comes_from_its_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sums(30))
    found = source(path, solution_column="steps")
    problem = found.problems(1, seed=0, start=0)[0]
    prompt, answer = found.worked_example(problem, random.Random(0), remaining_steps=0)
    assert (prompt, answer) == (problem.prompt_tokens, (*TOKENIZER.encode(problem.answer), 1))
    with pytest.raises(DataError, match=r"name its column in data\.options\.solution_column"):
        source(path).worked_example(source(path).problems(1, seed=0, start=0)[0], random.Random(0), remaining_steps=0)


DAMAGED = [
    ("a.jsonl", b"", r"a\.jsonl: there is no row in it"),
    ("a.jsonl", b"\n\n", r"a\.jsonl: there is no row in it"),
    (
        "a.jsonl",
        b'{"prompt": "a", "answer": "b"}\n{"prompt": "a", "ans',
        r"a\.jsonl:2: not valid JSON .*it was cut off",
    ),
    ("a.jsonl", b'{"prompt" "a"}\n{"prompt": "a"}\n', r"a\.jsonl:1: not valid JSON .*'\{\"prompt\" \"a\"\}'\.$"),
    ("a.jsonl", b'["a"]\n', r"a\.jsonl:1: a JSON object is needed"),
    ("a.jsonl", b"\xff\xfe", r"a\.jsonl: not UTF-8 text at byte 0"),
    ("a.jsonl", b'{"question": "a", "answer": "b"}\n', r"a\.jsonl:1: no column 'prompt'; it has question, answer"),
    ("a.jsonl", b'{"prompt": 3, "answer": "b"}\n', r"a\.jsonl:1: column 'prompt' holds 3; a text or a list"),
    ("a.jsonl", b'{"prompt": [], "answer": "b"}\n', r"a\.jsonl:1: column 'prompt' holds \[\]"),
    ("a.jsonl", b'{"prompt": [{"role": "user"}], "answer": "b"}\n', r"a\.jsonl:1: column 'prompt' holds"),
    ("a.jsonl", b'{"prompt": "a", "answer": null}\n', r"a\.jsonl:1: column 'answer' holds None; a text or a number"),
    ("a.parquet", b"PAR1 not really", r"a\.parquet: cannot be read as Parquet, it is damaged or cut off"),
    ("a.csv", b"a,b\n", r"a\.csv: a file ending in \.jsonl or \.parquet is needed"),
]


@pytest.mark.parametrize(("name", "content", "message"), DAMAGED)
def test_damaged_files_are_named_with_their_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        source(tmp_path / name)


def test_a_truncated_parquet_file_is_told(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(sums(40)), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    for keep in (*range(0, len(whole), 97), len(whole) - 1):
        (tmp_path / "a.parquet").write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet"):
            source(tmp_path / "a.parquet")


def test_a_parquet_file_without_rows_is_told(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(sums(1)).slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: there is no row in it"):
        source(tmp_path / "a.parquet")


def test_a_jsonl_file_cut_off_within_a_line_is_told_with_it(tmp_path: Path) -> None:
    """Wherever it is cut; only between two lines nothing shows that there were more."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row | {"note": "\u00e9\u4e09"}, ensure_ascii=False) + "\n" for row in sums(4)))
    whole = path.read_bytes()
    ends = [place for place in range(1, len(whole) + 1) if whole[:place].endswith((b"\n", b"}"))]
    for keep in range(1, len(whole)):
        path.write_bytes(whole[:keep])
        if keep not in ends:
            with pytest.raises(DataError, match=rf"{path}(:\d+: not valid JSON|: not UTF-8 text at byte)"):
                read_rows(str(path))
        else:
            assert read_rows(str(path))


def test_an_empty_prompt_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*sums(3), {"prompt": "", "answer": "1", "id": "s9"}])
    with pytest.raises(DataError, match=r"a\.jsonl:4: the prompt in column 'prompt' has no tokens"):
        source(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.jsonl: there is no such file"):
        source(tmp_path / "no.jsonl")


def test_a_repeated_id_is_told_with_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*sums(3), sums(2)[1]])
    with pytest.raises(DataError, match=r"a\.jsonl:4: id 's1' is already that of .*a\.jsonl:2"):
        source(path, id_column="id")


def test_a_file_with_nothing_left_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "a" * 99, "answer": "b"}])
    with pytest.raises(DataError, match=r"none of 1 rows is left for training: 1 prompts are longer than .* = 50"):
        source(path)


def test_an_unknown_score_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="score = 'best': one of exact, last_number, math, f1, choice is needed"):
        source(write(tmp_path / "a.jsonl", sums(3)), score="best")


def section(source: str, max_prompt_tokens: int = 64, **options: Any) -> DataSection:
    return DataSection(source=source, options=options, max_prompt_tokens=max_prompt_tokens)


def test_a_source_is_loaded_with_its_options_and_the_models_tokenizer(tmp_path: Path) -> None:
    from vime_train.config import ModelSection

    make_model(str(tmp_path / "model"), ModelSection(), TOKENIZER, seed=0)
    path = write(tmp_path / "a.jsonl", sums(30))
    found = load_source(
        section("vime_train.data.files:FileProblems", path=str(path), chat=False), model_path=str(tmp_path / "model")
    )
    assert found.problems(5, seed=0, start=0) == source(path).problems(5, seed=0, start=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (section("vime_train.data.files:FileProblems", path="a.jsonl"), r"'tokenizer'.* set model\.path"),
        (section("vime_train.data.arithmetic:ArithmeticSums", terms=3), r"'terms'; it takes min_terms, max_terms"),
        (section("vime_train.data.arithmetic:ArithmeticSum"), "Did you mean 'ArithmeticSums'"),
        (section("vime_train.data.arithmetik:ArithmeticSums"), "there is no module 'vime_train.data.arithmetik'"),
        (section("vime_train.data.arithmetic"), "write `package.module:name`"),
        (section("vime_train.data.arithmetic:LABELS"), "is not callable"),
    ],
)
def test_a_source_that_cannot_be_made_is_told(data: DataSection, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        load_source(data)


def test_a_source_that_raises_is_told_with_its_options() -> None:
    data = section("vime_train.data.arithmetic:ArithmeticSums", min_terms=9, max_terms=2)
    with pytest.raises(DataError, match=r"raised ValueError: min_terms=9 .* given data\.options = \{'min_terms': 9"):
        load_source(data)
    with pytest.raises(DataError, match=r"makes prompts of 17 tokens, more than data\.max_prompt_tokens = 16"):
        load_source(section("vime_train.data.arithmetic:ArithmeticSums", max_prompt_tokens=16))
