"""What a run has before its processes start: its configuration, its directory, its data, and every check of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vime_train.config import check_launch, with_iterations
from vime_train.data import DataError, load_source, make_model
from vime_train.plugins import calling
from vime_train.rollout import Collector, EvaluationSets, check_names
from vime_train.state import RunDirectory, whole_directory

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.report import Progress
    from vime_train.rollout import Problem
    from vime_train.state import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that can start; `checkpoint` is where it goes on from."""

    config: RunConfig
    directory: RunDirectory
    source: DataSource
    collector: Collector
    evaluation_sets: EvaluationSets
    checkpoint: Checkpoint | None
    progress: Progress

    @classmethod
    def new(cls, config: RunConfig, progress: Progress) -> Self:
        """A run from its beginning. Nothing is written where it cannot work."""
        config, source, collector, sets = _checked(config)
        return cls(
            config=config,
            directory=RunDirectory.create(config),
            source=source,
            collector=collector,
            evaluation_sets=sets,
            checkpoint=None,
            progress=progress,
        )

    @classmethod
    def of_directory(cls, path: str | Path, progress: Progress) -> Self:
        """A run that goes on from its newest checkpoint."""
        directory, config, checkpoint = RunDirectory.resume(path)
        config, source, collector, sets = _checked(config)
        return cls(
            config=config,
            directory=directory,
            source=source,
            collector=collector,
            evaluation_sets=sets,
            checkpoint=checkpoint,
            progress=progress,
        )

    def model_path(self) -> str:
        """The model to start from, made first where the configuration names none."""
        if self.config.model.path is not None:
            return self.config.model.path
        path = self.directory.model
        if not path.exists():
            with whole_directory(path) as aside:
                make_model(str(aside), self.config.model, self.source.tokenizer, seed=self.config.seed)
        return str(path)


def _checked(config: RunConfig) -> tuple[RunConfig, DataSource, Collector, EvaluationSets]:
    """The configuration with its length, the data source and what draws from it, after every check that needs them."""
    source = load_source(config.data, model_path=config.model.path)
    name = f"data.source = {config.data.source!r}"
    with calling(name, error=DataError):
        num_problems = source.num_problems
    config = with_iterations(config, num_problems)
    check_launch(config, vocab_size=source.tokenizer.vocab_size)
    with calling(name, error=DataError):
        check_names(_known_problems(config, source), config.rollout)
    return config, source, Collector(config, source), EvaluationSets(config, source)


def _known_problems(config: RunConfig, source: DataSource) -> Iterator[Problem]:
    """Those that can be looked at before the run: one epoch, where there is an end to it, and what evaluation asks."""
    if source.num_problems is not None:
        yield from source.problems(source.num_problems, seed=config.seed, start=0)
    if config.rollout.functions or config.rollout.rewards:
        split = source.held_out if config.evaluation.split == "held_out" else source.validation
        yield from split(config.evaluation.problems)
