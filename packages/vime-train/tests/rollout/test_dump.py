"""Saved rollouts: back to the bit, whole or an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import (
    Collector,
    DumpError,
    Problem,
    Rollout,
    Sample,
    assemble,
    load_rollouts,
    save_rollouts,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(max_size=8)


@st.composite
def a_rollout(draw: Any) -> Rollout:
    rollout_id, group_id = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))

    def sample() -> Sample:
        length, prompt = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        return Sample(
            tokens=tuple(draw(st.lists(st.integers(0, 2**20), min_size=length + prompt, max_size=length + prompt))),
            response_length=length,
            loss_mask=tuple(draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))),
            rollout_log_probs=tuple(draw(st.lists(finite, min_size=length, max_size=length))),
            rollout_id=rollout_id,
            group_id=group_id,
            reward=draw(finite),
            status=draw(st.sampled_from(["completed", "truncated"])),
            weight_version=draw(st.integers(0, 100)),
            weight_versions=tuple(draw(st.lists(st.integers(0, 3), max_size=5))),
            columns=draw(st.dictionaries(names, st.tuples(*[finite] * length), max_size=2)),
        )

    problem = Problem(
        problem_id=draw(names),
        prompt=draw(names),
        answer=draw(names),
        prompt_tokens=tuple(draw(st.lists(st.integers(0, 100), max_size=4))),
        metadata=draw(st.dictionaries(names, st.one_of(names, st.integers(), finite, st.booleans()), max_size=3)),
    )
    samples = tuple(sample() for _ in range(draw(st.integers(1, 3))))
    return Rollout(rollout_id=rollout_id, group_id=group_id, problem=problem, samples=samples, reward=draw(finite))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rollouts=st.lists(a_rollout(), max_size=4))
def test_rollouts_come_back_to_the_bit(tmp_path: Path, rollouts: list[Rollout]) -> None:
    save_rollouts(rollouts, tmp_path / "dump")
    assert load_rollouts(tmp_path / "dump") == rollouts


@pytest.fixture
def saved(tmp_path: Path, scripted_engine: Any, small_run: Callable[..., RunConfig]) -> Path:
    engine = scripted_engine(lambda prompt, sample, seed: f"#{(seed + sample) % 30}")
    save_rollouts(Collector(small_run(), ArithmeticSums()).collect(engine).rollouts, tmp_path / "dump")
    return tmp_path / "dump"


def test_a_saved_batch_is_planned_as_the_first_one(saved: Path, small_run: Callable[..., RunConfig]) -> None:
    """Train-only: the same rollouts give the same plan, weights and advantages."""
    config = small_run("rollout.drop_zero_variance=false")
    one, two = (assemble(load_rollouts(saved), config, iteration=1) for _ in range(2))
    assert one.schedule is not None
    assert one.schedule == two.schedule
    assert [batch.weights.tolist() for batch in one.rank_batches] == [
        batch.weights.tolist() for batch in two.rank_batches
    ]


def test_saving_again_replaces_all(saved: Path) -> None:
    rollouts = load_rollouts(saved)[:1]
    save_rollouts(rollouts, saved)
    assert load_rollouts(saved) == rollouts
    assert {path.name for path in saved.parent.iterdir()} == {"dump"}


def test_nothing_is_pickled(saved: Path) -> None:
    assert {path.suffix for path in saved.iterdir()} == {".jsonl", ".safetensors"}


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.95])
def test_cut_off_columns_are_told(saved: Path, keep: float) -> None:
    cut(saved / "columns.safetensors", keep)
    with pytest.raises(DumpError, match=r"columns\.safetensors: cannot be read .* cut off or damaged"):
        load_rollouts(saved)


def test_a_cut_off_line_is_told_with_its_number(saved: Path) -> None:
    cut(saved / "rollouts.jsonl", 0.5)
    with pytest.raises(DumpError, match=r"rollouts\.jsonl:\d+: not valid JSON"):
        load_rollouts(saved)


def test_missing_lines_are_told(saved: Path) -> None:
    lines = (saved / "rollouts.jsonl").read_text().splitlines(keepends=True)
    (saved / "rollouts.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(DumpError, match=r"column 'tokens' has \d+ entries, rollouts\.jsonl tells of \d+"):
        load_rollouts(saved)


def test_a_missing_field_is_told(saved: Path) -> None:
    text = (saved / "rollouts.jsonl").read_text()
    (saved / "rollouts.jsonl").write_text(text.replace('"weight_version"', '"version"', 1))
    with pytest.raises(DumpError, match=r"rollouts\.jsonl:1: KeyError 'weight_version': a field is missing"):
        load_rollouts(saved)


@pytest.mark.parametrize("name", ["columns.safetensors", "rollouts.jsonl"])
def test_a_file_cut_off_anywhere_is_told(saved: Path, name: str) -> None:
    """Never another error, and never fewer rollouts; the newline at the end of the last line says nothing."""
    content = (saved / name).read_bytes()
    for keep in {*range(0, len(content) - 1, 37), content.index(b"\n") + 1 if name.endswith("l") else 8}:
        (saved / name).write_bytes(content[:keep])
        with pytest.raises(DumpError, match=name):
            load_rollouts(saved)


ON_A_FULL_DISK = """
import resource, sys
from vime_train.rollout import load_rollouts, save_rollouts
rollouts = load_rollouts(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    save_rollouts(rollouts, sys.argv[1])
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["columns.safetensors", "rollouts.jsonl"])
def test_a_dump_that_the_disk_has_no_room_for_leaves_the_old_one(saved: Path, name: str) -> None:
    """Files may not grow beyond a limit: a byte less than the columns need, or than the lines, which need more."""
    before = load_rollouts(saved)
    limit = str((saved / name).stat().st_size - 1)
    assert (saved / "columns.safetensors").stat().st_size < (saved / "rollouts.jsonl").stat().st_size
    script = [sys.executable, "-c", ON_A_FULL_DISK, str(saved), limit]
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("[Errno 27] File too large: ")
    assert name in done.stdout
    assert load_rollouts(saved) == before
    assert {path.name for path in saved.parent.iterdir()} == {"dump"}


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="there is no such file: name a directory that save_rollouts wrote"):
        load_rollouts(tmp_path / "nothing")
