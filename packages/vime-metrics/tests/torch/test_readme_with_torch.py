"""The examples of the README that need torch run."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_run():
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "vime_metrics.torch" in block]
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
