"""Judges by name, and judges of a user's own."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.data import CharTokenizer, DataError
from vime_train.data._scores import choice, f1, score_function
from vime_train.data.files import FileProblems
from vime_train.plugins import PluginError

WORDS = st.lists(st.sampled_from(["cat", "dog", "sat", "down", "red"]), max_size=6)


def overlap(answer: list[str], reference: list[str]) -> float:
    """The slow way: take each word of the reference once, then precision, recall and their harmonic mean."""
    if not answer or not reference:
        return float(answer == reference)
    left, common = list(reference), 0
    for word in answer:
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return 0.0
    precision, recall = common / len(answer), common / len(reference)
    return 2 * precision * recall / (precision + recall)


@given(answer=WORDS, reference=WORDS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer: list[str], reference: list[str]) -> None:
    found = f1(" ".join(answer), " ".join(reference))
    assert found == pytest.approx(overlap(answer, reference))
    assert (found == 1) == (Counter(answer) == Counter(reference))


def test_f1_looks_past_case_punctuation_and_articles() -> None:
    assert f1("The  Cat, (sat)!", "a cat sat") == 1.0
    assert f1("", "") == f1("the", "an") == 1.0
    assert f1("", "cat") == f1("cat", "") == 0.0


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("(C)", "C"),
        ("C", "C"),
        ("C. Paris", "C"),
        ("The answer is C.", "C"),
        ("Answer: (C)", "C"),
        (r"So \boxed{C}", "C"),
        ("Neither (A) nor (B):\nD", "D"),
        ("First I thought (A). The answer is B", "B"),
    ],
)
def test_the_letter_that_is_chosen_last_counts(answer: str, chosen: str) -> None:
    assert [letter for letter in "ABCD" if choice(answer, letter)] == [chosen]
    assert choice(answer, f"({chosen.lower()})")


@pytest.mark.parametrize("answer", ["A cat", "I do not know", "the answer is unclear", "", "grade C student", "DNA"])
def test_a_letter_that_is_only_part_of_a_sentence_is_not_chosen(answer: str) -> None:
    assert not any(choice(answer, letter) for letter in "ABCDI")


def vowels(answer: str, reference: str) -> float:
    return sum(letter in "aeiou" for letter in answer) / len(reference)


def no_reference(answer: str) -> float:
    return 0.0


def source(tmp_path: Path, score: str) -> FileProblems:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{place}?", "answer": "four"}) + "\n" for place in range(20)))
    tokenizer = CharTokenizer(alphabet="0123456789?")
    return FileProblems(path=str(path), tokenizer=tokenizer, max_prompt_tokens=9, chat=False, score=score)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "judges_of_test_scores", sys.modules[__name__])
    return "judges_of_test_scores"


def test_a_judge_of_a_users_own_scores_and_an_answer_that_was_cut_does_not(tmp_path: Path, here: str) -> None:
    found = source(tmp_path, f"{here}:vowels")
    problem = found.problems(1, seed=0, start=0)[0]
    assert found.score(problem, "aa b", finished=True) == 0.5
    assert found.score(problem, "aa b", finished=False) == 0.0
    assert source(tmp_path, "f1").score(problem, "four five", finished=True) == pytest.approx(2 / 3)


def test_a_judge_that_cannot_be_used_is_told(tmp_path: Path, here: str) -> None:
    with pytest.raises(PluginError, match=r"data\.options\.score = '.*' takes \(answer\); it is called as"):
        source(tmp_path, f"{here}:no_reference")
    with pytest.raises(DataError, match="one of exact, last_number, math, f1, choice is needed, or an import path"):
        score_function("bleu")
