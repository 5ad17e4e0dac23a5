"""Every python block of the README runs, top to bottom, and prints what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_and_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```(?:\n```text\n(.*?)^```)?", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict[str, object] = {}
    for number, (code, expected) in enumerate(blocks):
        exec(compile(code, f"README block {number}", "exec"), namespace)
        assert capsys.readouterr().out == expected
