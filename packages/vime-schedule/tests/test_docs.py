"""Every example of the documentation runs, and prints what it says it prints."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vime_schedule

README = Path(__file__).parents[1] / "README.md"
ROOT = Path(__file__).parents[3]
MIGRATING = ROOT / "docs" / "migrating.md"


def blocks(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield language, text and first line of every fenced block."""
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 1


def run_console(block: str, place: str) -> None:
    """Run the commands of a block and compare what they print; milliseconds may differ."""
    for command, expected in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
        done = subprocess.run(["bash", "-c", command], capture_output=True, encoding="utf-8", timeout=60, check=True)
        printed, wanted = (re.sub(r" +(\d+\.\d|ms)$", "", text, flags=re.MULTILINE) for text in (done.stdout, expected))
        assert printed.rstrip() == wanted.rstrip(), f"{place}: {command}"


@pytest.mark.parametrize("path", [README, MIGRATING, ROOT / "README.md"], ids=["readme", "migrating", "root"])
def test_every_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    names: dict[str, object] = {}
    languages = set()
    printed = ""
    for language, text, line in blocks(path):
        languages.add(language)
        if language == "python":
            exec(compile("\n" * line + text, str(path), "exec"), names)
            printed = capsys.readouterr().out
        elif language == "text":
            assert printed == text, f"{path.name}:{line}"
        elif language == "console":
            run_console(text, f"{path.name}:{line}")
    assert "python" in languages


def test_every_picture_of_the_readme_is_there() -> None:
    text = README.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    assert len(pictures) == 4
    for picture in pictures:
        assert (README.parent / picture).read_bytes().startswith(b"\x89PNG")


MODULES = [
    name for _, name, _ in pkgutil.walk_packages(vime_schedule.__path__, "vime_schedule.") if "__main__" not in name
]


@pytest.mark.parametrize("name", ["vime_schedule", *MODULES])
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_every_public_name_has_an_example_or_is_a_plain_record() -> None:
    """Functions and cost models show a call, records explain their fields, extension points their methods."""
    for name in vime_schedule.__all__:
        value = getattr(vime_schedule, name)
        if inspect.isabstract(value):
            assert all(getattr(value, method).__doc__ for method in value.__abstractmethods__)
        else:
            assert ">>> " in value.__doc__ or "Args:" in value.__doc__, name
