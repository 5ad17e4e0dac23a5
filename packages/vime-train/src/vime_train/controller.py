"""The run, as the algorithm reads: sync weights, generate, check, plan, train, log, save.

Always true:

- iteration `k` samples under weights `k - 1`, and the trainers check that before they train on it;
- what an iteration does is a function of the configuration, of `k`, and of the trainers' state before it, so a run that
  was killed and resumed ends in the same numbers;
- metrics hold iteration `k` before its checkpoint exists, and a resumed run drops the records after its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from vime_metrics import Last, Mean, merge
from vime_train._errors import RunError, Terminated
from vime_train.cluster import Cluster, terminated_by_exception
from vime_train.config import check_launch
from vime_train.data import load_source, make_model
from vime_train.phases import DivergenceGuard, Timer, WeightSync, train_supervised
from vime_train.report import MetricsLog, PlainProgress, open_sinks, write_last_iteration
from vime_train.rollout import Collector, EvaluationSets, assemble, evaluate, warm_up
from vime_train.state import BUFFER, RunDirectory, whole_directory

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_train.cluster import EnginePool, TrainerGroup
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.report import Progress
    from vime_train.rollout import IterationBatch
    from vime_train.state import Checkpoint


Figures: TypeAlias = "Mapping[str, Metric | float]"


def run(config: RunConfig, *, progress: Progress | None = None) -> Path:
    """Train as the configuration says, and return the run directory.

    Raises:
        ConfigError: if the run cannot work; nothing was started.
        StateError: if the run directory holds something already.
        ActorError: if a trainer died, or a process raised; `resume` goes on from the last checkpoint.
        WeightSyncError: if the engines do not hold the trainers' weights.
        RewardError, RolloutError: if the user's code failed; a checkpoint of the last whole iteration was written.
    """
    data = _data(config)
    directory = RunDirectory.create(config)
    return _run(_Job(config, directory, *data, None, progress or PlainProgress()))


def resume(path: str | Path, *, progress: Progress | None = None) -> Path:
    """Go on with a run from its newest checkpoint, and return the run directory. Raises as `run` does."""
    directory, config, checkpoint = RunDirectory.resume(path)
    return _run(_Job(config, directory, *_data(config), checkpoint, progress or PlainProgress()))


@dataclass(frozen=True, slots=True)
class _Job:
    """What a run has before its processes start."""

    config: RunConfig
    directory: RunDirectory
    source: DataSource
    collector: Collector
    evaluation_sets: EvaluationSets
    checkpoint: Checkpoint | None
    progress: Progress

    def model_path(self) -> str:
        """The model to start from, made first where the configuration names none."""
        if self.config.model.path is not None:
            return self.config.model.path
        path = self.directory.model
        if not path.exists():
            with whole_directory(path) as aside:
                make_model(str(aside), self.config.model, self.source.tokenizer, seed=self.config.seed)
        return str(path)


def _data(config: RunConfig) -> tuple[DataSource, Collector, EvaluationSets]:
    """The data source and what draws from it, and every check that needs them."""
    source = load_source(config.data, model_path=config.model.path)
    check_launch(config, vocab_size=source.tokenizer.vocab_size)
    return source, Collector(config, source), EvaluationSets(config, source)


def _run(job: _Job) -> Path:
    model_path = job.model_path()
    layout, engines_wanted = job.config.layout, job.config.engine.engines
    job.progress.say("starting Ray")
    with (
        _told_how_to_go_on(job.directory),
        terminated_by_exception(),
        Cluster(job.config, root=job.directory.root, logs=job.directory.logs) as cluster,
    ):
        job.progress.say(f"starting {layout.world_size} trainers and {engines_wanted} engines")
        trainers = cluster.begin_trainers(model_path)
        engines = cluster.begin_engines(model_path, max_model_len=job.config.max_sample_tokens)
        trainers.ready()
        _Loop(job, cluster, trainers, engines).run(job.checkpoint)
    return job.directory.root


@contextmanager
def _told_how_to_go_on(directory: RunDirectory) -> Iterator[None]:
    try:
        yield
    except (RunError, KeyboardInterrupt, Terminated) as error:
        latest = directory.checkpoints.latest()
        if latest is not None:
            error.add_note(f"Iteration {latest.iteration} is saved: go on with `vime-train resume {directory.root}`.")
        raise


class _Loop:
    """The state of a run between its iterations."""

    def __init__(self, job: _Job, cluster: Cluster, trainers: TrainerGroup, engines: EnginePool) -> None:
        self._config = config = job.config
        self._directory = directory = job.directory
        self._source = job.source
        self._collector = job.collector
        self._evaluation_sets = job.evaluation_sets
        self._progress = job.progress
        self._trainers = trainers
        self._engines = engines
        self._sync = WeightSync(cluster, trainers, engines, config)
        self._divergence = DivergenceGuard(config.train.max_skipped_steps, log=directory.logs / "trainer-0.log")
        self._log = MetricsLog(directory.metrics, open_sinks(config.tracking, directory.root))
        self._iteration = 0
        self._optimizer_steps = 0

    def run(self, checkpoint: Checkpoint | None) -> None:
        """Every iteration that is still to come."""
        if checkpoint is None:
            self._begin()
        else:
            self._restore(checkpoint)
        for iteration in range(self._iteration + 1, self._config.train.iterations + 1):
            self._step(iteration)
        self._trainers.export(self._directory.export)

    def _begin(self) -> None:
        """Supervised training while the engines start, and the figures before the first iteration."""
        timer = Timer()
        with timer.phase("supervised"):
            numbers = train_supervised(
                self._trainers, self._source, self._config, after_step=self._after_supervised_step
            )
        with timer.phase("start"):
            warm_up()
            self._engines.ready()
        with timer.phase("sync"):
            self._sync.send(version=0)
        with timer.phase("evaluate"):
            evaluation = self._evaluate() if self._config.evaluation.before_training else {}
        supervised = {f"supervised/{name}": value for name, value in numbers.items()}
        self._record(0, [supervised, evaluation, timer.metrics()])
        if self._config.supervised.steps and self._config.checkpoint.every:
            self._save()

    def _after_supervised_step(self, done: int, numbers: dict[str, float]) -> None:
        self._engines.raise_if_start_failed()
        self._divergence.saw(numbers, lr_setting="supervised.lr")
        values = {f"supervised/{name}": value for name, value in numbers.items()}
        self._progress.advance("supervised", done, self._config.supervised.steps, values)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._progress.say(f"resuming after iteration {checkpoint.iteration}")
        self._trainers.load(checkpoint.trainer_path)
        self._collector.restore(checkpoint.data)
        self._collector.load_buffer(checkpoint.buffer_path)
        self._iteration = checkpoint.iteration
        self._optimizer_steps = checkpoint.optimizer_steps
        self._engines.ready()
        self._sync.send(version=checkpoint.iteration)

    def _step(self, iteration: int) -> None:
        """One iteration of the algorithm."""
        timer = Timer()
        before = self._collector.state()
        with timer.phase("generate"), self._nothing_lost(before):
            collected = self._collector.collect(self._engines)
        with timer.phase("check"):
            samples = [sample for rollout in collected.rollouts for sample in rollout.samples]
            difference = self._sync.check(samples) if samples and collected.generated else {}
        with timer.phase("plan"):
            batch = assemble(collected.rollouts, self._config, iteration=iteration)
            write_last_iteration(self._directory.root, iteration, collected.rollouts, batch, self._source)
        with timer.phase("train"):
            steps = self._train(batch, iteration)
        self._iteration = iteration
        self._optimizer_steps += len(steps)
        with timer.phase("sync"):
            self._sync.send(version=iteration)
        with timer.phase("evaluate"):
            evaluation = self._evaluate() if self._is_due(self._config.evaluation.every) else {}
        self._record(
            iteration, [collected.metrics, batch.metrics, difference, _over_steps(steps), evaluation, timer.metrics()]
        )
        if self._is_due(self._config.checkpoint.every):
            self._save()

    def _train(self, batch: IterationBatch, iteration: int) -> list[dict[str, float]]:
        if batch.schedule is None:
            self._progress.say(f"iteration {iteration}: no finished group has two different rewards")
            return []
        if self._config.debug.rollout_only:
            return []
        debug, place = self._config.debug, str(self._directory.profile(iteration))
        steps = self._trainers.train(
            batch.rank_batches,
            doing=f"train iteration {iteration}",
            trace_to=place if iteration in debug.profile_iterations else None,
            memory_to=place if iteration in debug.memory_snapshot_iterations else None,
        )
        for step in steps:
            self._divergence.saw(step, lr_setting="optimizer.lr")
        return steps

    def _evaluate(self) -> Figures:
        """Greedy accuracy, the check of the sync that came before, and the figures of the further sets."""
        figures: Figures = {}
        if self._config.evaluation.problems > 0:
            evaluation = evaluate(self._engines, self._source, self._config)
            self._sync.check(evaluation.samples)
            figures = {"eval/accuracy": evaluation.accuracy, "eval/mean_length": evaluation.mean_length}
        return {**figures, **self._evaluation_sets.evaluate(self._engines)}

    def _record(self, iteration: int, parts: Sequence[Figures]) -> None:
        counters: Figures = {
            "train/total_optimizer_steps": float(self._optimizer_steps),
            "engine/restarts": float(self._engines.restarts),
        }
        values = self._log.write(iteration, {**counters, **{k: v for part in parts for k, v in part.items()}})
        self._progress.advance("iteration", iteration, self._config.train.iterations, values)

    def _is_due(self, every: int) -> bool:
        last = self._iteration == self._config.train.iterations
        return last or (every > 0 and self._iteration % every == 0)

    def _save(self) -> None:
        latest = self._directory.checkpoints.latest()
        if latest is not None and latest.iteration == self._iteration:
            return
        record = {"weight_version": self._sync.version, "optimizer_steps": self._optimizer_steps}
        writing = self._directory.checkpoints.write(iteration=self._iteration, data=self._collector.state(), **record)
        with writing as path:
            self._trainers.save(path)
            self._collector.save_buffer(path.with_name(BUFFER))

    @contextmanager
    def _nothing_lost(self, before: dict[str, int]) -> Iterator[None]:
        """Save the last whole iteration when rollouts fail: the trainers still hold it."""
        try:
            yield
        except RunError:
            self._collector.restore(before)
            self._save()
            raise


def _over_steps(steps: Sequence[dict[str, float]]) -> dict[str, Metric]:
    """The mean over the optimizer steps of an iteration, and how many there were."""
    merged = [{f"train/{name}": Mean(value, 1) for name, value in step.items()} for step in steps]
    return {**merge(*merged), "train/optimizer_steps": Last(len(steps))}
