"""The feature table names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = (TESTS.parent / "docs" / "features.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TABLE)))


def test_the_table_names_tests() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("file", "test"), NAMED, ids="::".join)
def test_a_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), flags=re.MULTILINE)


def test_every_feature_that_works_names_its_test() -> None:
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith("| ") and "---" not in line]
    bare = [cells[1].strip() for cells in rows if cells[2].strip().startswith("works") and ".py::" not in cells[3]]
    assert not bare
