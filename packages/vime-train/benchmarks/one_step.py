"""What generating one step ahead of training saves on this machine: the demo's iterations, with and without.

    python packages/vime-train/benchmarks/one_step.py

Both runs are the demo from the same seed, without evaluation. Iteration 1 and the last one overlap with nothing and are
left out of the means.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from vime_train.report import Record, read_records, series

ITERATIONS = 10
PHASES = ("generate", "check", "plan", "train", "sync")


def run(root: Path, *, ahead: bool) -> list[Record]:
    settings = [
        f"run_dir={root}",
        f"train.iterations={ITERATIONS}",
        "evaluation.problems=0",
        "checkpoint.every=0",
        f"rollout.one_step_off_policy={str(ahead).lower()}",
    ]
    command = [str(Path(sys.executable).with_name("vime-train")), "run", "arithmetic.toml"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    subprocess.run([*command, *overrides], check=True, capture_output=True)
    return read_records(root / "metrics.jsonl")[2:-1]


def mean(records: list[Record], name: str) -> float:
    values = series(records, name)[1]
    return sum(values) / len(values) if values else 0.0


def main() -> None:
    names = [*PHASES, "generate_hidden", "step"]
    print(f"{'seconds per iteration':<24}" + "".join(f"{name:>17}" for name in names))
    with tempfile.TemporaryDirectory() as directory:
        for ahead in (False, True):
            records = run(Path(directory, f"ahead-{ahead}"), ahead=ahead)
            label = "one step off-policy" if ahead else "on-policy"
            print(f"{label:<24}" + "".join(f"{mean(records, f'time/{name}'):>17.2f}" for name in names), flush=True)


if __name__ == "__main__":
    main()
