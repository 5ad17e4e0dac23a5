"""The last iteration as a reader wants to see it: its plan, its lengths, and some of its rollouts with their rewards.

Always true: the files are replaced whole; they hold text and numbers, never tokens that only a program can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train._files import writing

if TYPE_CHECKING:
    from vime_train.data import DataSource
    from vime_train.rollout import IterationBatch, Rollout

PLAN = "plan.json"
SAMPLES = "samples.json"
MAX_ROLLOUTS = 24


def write_last_iteration(
    directory: str | Path, iteration: int, rollouts: Sequence[Rollout], batch: IterationBatch, source: DataSource
) -> None:
    """Write `plan.json` and `samples.json` into the run directory."""
    root = Path(directory)
    if batch.schedule is not None:
        _replace(root / PLAN, batch.schedule.to_json())
    shown = [_rollout(rollout, source) for rollout in _spread(rollouts)]
    lengths = [sample.response_length for rollout in rollouts for sample in rollout.samples]
    content = {"iteration": iteration, "response_lengths": lengths, "rollouts": shown}
    _replace(root / SAMPLES, json.dumps(content, ensure_ascii=False))


def _spread(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Up to `MAX_ROLLOUTS`, evenly from the lowest reward to the highest, so that every kind of answer is shown."""
    ranked = sorted(rollouts, key=lambda rollout: rollout.reward)
    count = min(MAX_ROLLOUTS, len(ranked))
    return [ranked[place * (len(ranked) - 1) // max(1, count - 1)] for place in range(count)]


def _rollout(rollout: Rollout, source: DataSource) -> dict[str, object]:
    return {
        "prompt": rollout.problem.prompt,
        "answer": rollout.problem.answer,
        "reward": rollout.reward,
        "attempts": [
            {
                "text": source.tokenizer.decode(sample.tokens[-sample.response_length :]),
                "tokens": sample.response_length,
                "status": sample.status,
            }
            for sample in rollout.samples
        ],
    }


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.writing")
    with writing(path):
        aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
