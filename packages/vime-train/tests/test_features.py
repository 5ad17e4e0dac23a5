"""The tables of features and of faults name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
TABLE, FAULTS = (DOCS / "features.md").read_text(), (DOCS / "faults.md").read_text()
PATTERN = re.compile(r"`([\w/]+\.py)::(\w+)`")
NAMED = sorted({*PATTERN.findall(TABLE), *PATTERN.findall(FAULTS)})


def rows(text: str) -> list[list[str]]:
    """The cells of every row of its tables, headings left out."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("feature", "fault")]


def test_the_tables_name_tests() -> None:
    assert len(PATTERN.findall(TABLE)) > 40
    assert len(PATTERN.findall(FAULTS)) > 40


def test_every_fault_names_its_test() -> None:
    assert len(rows(FAULTS)) > 30
    assert not [row[0] for row in rows(FAULTS) if not PATTERN.search(row[-1])]


@pytest.mark.parametrize(("file", "test"), NAMED, ids="::".join)
def test_a_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), flags=re.MULTILINE)


def test_every_feature_that_works_names_its_test() -> None:
    assert not [row[0] for row in rows(TABLE) if row[1].startswith("works") and ".py::" not in row[2]]
