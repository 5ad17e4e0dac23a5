"""Every example of the README that needs no torch runs, in order, in one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    scope: dict[str, object] = {}
    for block in blocks:
        if "vime_metrics.torch" not in block:
            exec(compile(block, str(README), "exec"), scope)
    assert capsys.readouterr().out == "step 0\n  train/loss  0.375\n"


@pytest.mark.parametrize("link", ["benchmarks/reduction.py", "benchmarks/quantiles.py"])
def test_what_it_names_exists(link):
    assert link in README.read_text(encoding="utf-8")
    assert (README.parent / link).is_file()
