"""`vime-train eval`: how good a model is, without training.

Always true: it answers with the engine of a run, and scores with its reward; every figure comes with the number of
problems behind it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config import ConfigError, load_config
from vime_train.data import load_source
from vime_train.rollout import score_split, split_figures
from vime_train.state import read_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from vime_train.config import RunConfig
    from vime_train.engine import Engine
    from vime_train.rollout import ScoredAnswer


def eval(arguments: argparse.Namespace) -> int:  # noqa: A001  # the name of the command
    """Answer the problems of a split and print the figures."""
    config, model_path = _what(arguments)
    source = load_source(config.data, model_path=model_path)
    split = arguments.split or config.evaluation.split
    count = config.evaluation.problems if arguments.problems is None else arguments.problems
    problems = source.held_out(count) if split == "held_out" else source.validation(count)
    if not problems:
        raise ConfigError(f"the split {split} has no problem: ask for at least one with --problems.")
    engine = _engine(config, model_path)
    scored = score_split(
        engine,
        source,
        config,
        problems,
        samples=arguments.samples,
        temperature=_temperature(arguments, config),
        top_p=config.rollout.top_p if arguments.top_p is None else arguments.top_p,
    )
    engine.close()
    print(f"{model_path}: {len(problems)} problems of {split}, {arguments.samples} answers each")
    for name, value in split_figures(scored, solved_score=config.rollout.solved_score).items():
        print(f"  {name:<12}{value:.4f}")
    if arguments.output:
        _write(scored, Path(arguments.output))
    return 0


def _what(arguments: argparse.Namespace) -> tuple[RunConfig, str]:
    """The configuration and the model directory that the arguments name."""
    if arguments.samples < 1:
        raise ConfigError(f"--samples {arguments.samples}: at least 1 is needed.")
    if arguments.top_p is not None and not 0 < arguments.top_p <= 1:
        raise ConfigError(f"--top-p {arguments.top_p:g}: above 0 and at most 1 is needed.")
    if arguments.run is None:
        config = load_config(arguments.config, arguments.overrides)
        if config.model.path is None:
            raise ConfigError("there is no trained model to evaluate: name a run with --run, or set model.path.")
        return config, config.model.path
    root = Path(arguments.run)
    if not (root / "config.json").is_file() or not (root / "export" / "config.json").is_file():
        raise ConfigError(f"{root} is not the directory of a finished run: it needs config.json and export/.")
    return read_config(root / "config.json"), str(root / "export")


def _temperature(arguments: argparse.Namespace, config: RunConfig) -> float:
    if arguments.temperature is not None:
        return float(arguments.temperature)
    return 0.0 if arguments.samples == 1 else config.rollout.temperature


def _engine(config: RunConfig, model_path: str) -> Engine:
    """A vLLM engine in this process."""
    import os

    from vime_train.cluster import engine_environment

    os.environ.update(engine_environment(config.engine, local=True))
    from vime_train.engine._vllm import VllmEngine

    return VllmEngine(
        model_path,
        section=config.engine,
        max_model_len=config.max_sample_tokens,
        seed=config.seed,
        native=config.vllm,
    )


def _write(scored: Sequence[ScoredAnswer], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for one in scored:
            record = {
                "problem_id": one.problem.problem_id,
                "prompt": one.problem.prompt,
                "answer": one.text,
                "reference": one.problem.answer,
                "tokens": one.tokens,
                "finished": one.finished,
                "score": one.score,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"  answers     {path}")
