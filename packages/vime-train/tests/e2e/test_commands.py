"""Commands on what a run left: the figures and the weights are those of its last iteration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

if TYPE_CHECKING:
    from conftest import Life, Run

pytestmark = pytest.mark.timeout(1800)  # the first test to ask for a run waits for all of it

CONFIG = str(Path(__file__).with_name("tiny.toml"))


def assert_figures_of_the_run(output: str, straight: Life) -> None:
    """What `eval` printed, against the evaluation that the run made after its last weight sync."""
    last = straight.metrics()[-1]
    found = dict(re.findall(r"^  (\w+) +([\d.]+)$", output, flags=re.MULTILINE))
    assert found["score"] == f"{last['eval/accuracy']:.4f}"
    assert found["mean_length"] == f"{last['eval/mean_length']:.4f}"
    assert "40 problems of held_out, 1 answers each" in output


def test_eval_gives_the_figures_of_the_run(straight: Life, tmp_path: Path, command: Run) -> None:
    """A real engine of its own, with the exported weights; every answer is written too."""
    answers = tmp_path / "answers.jsonl"
    done = command(tmp_path, "eval", "--run", str(straight.root), "--output", str(answers))
    assert done.code == 0, done.errors
    assert_figures_of_the_run(done.output, straight)
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(rows) == 40
    assert float(np.mean([row["score"] for row in rows])) == straight.metrics()[-1]["eval/accuracy"]
    assert all(row["score"] == float(row["answer"].endswith("#" + row["reference"])) for row in rows if row["finished"])


def test_exported_and_converted_weights_are_those_of_the_run(straight: Life, tmp_path: Path, command: Run) -> None:
    exported, converted = tmp_path / "exported", tmp_path / "converted"
    done = command(tmp_path, "export", str(straight.root), str(exported))
    assert done.code == 0, done.errors
    expected = load_file(straight.root / "export" / "model.safetensors")
    found = load_file(exported / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)

    done = command(tmp_path, "convert", str(exported), str(converted))
    assert done.code == 0, done.errors
    settings = ["--set", f"model.path={converted}"]
    done = command(tmp_path, "eval", CONFIG, *settings)
    assert done.code == 0, done.errors
    assert_figures_of_the_run(done.output, straight)


def test_an_older_checkpoint_is_exported_on_request(straight: Life, tmp_path: Path, command: Run) -> None:
    """The newest two are kept; the weights of the one before the last are others."""
    done = command(tmp_path, "export", str(straight.root), str(tmp_path / "older"), "--iteration", "5")
    assert done.code == 0, done.errors
    older = load_file(tmp_path / "older" / "model.safetensors")
    newest = load_file(straight.root / "export" / "model.safetensors")
    assert any(np.abs(older[name] - newest[name]).max() > 1e-5 for name in newest)
