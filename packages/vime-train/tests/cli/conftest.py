"""Commands run in an empty directory, and are refused with one message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vime_train.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail, and returns its one message."""

    def run(*arguments: str, code: int = 2) -> str:
        assert main(arguments) == code
        errors = capsys.readouterr().err
        assert errors.startswith("vime-train: ")
        assert "Traceback" not in errors
        return errors

    return run
