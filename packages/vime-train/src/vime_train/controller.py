"""The run, as the algorithm reads: sync weights, generate, check, plan, train, log, save.

Always true:

- iteration `k` samples under weights `k - 1`; with `rollout.one_step_off_policy` under weights `k - 2`, while iteration
  `k - 1` is trained;
- after every sync, before anything more is trained, the trainers check tokens that the engines sampled under it;
- what an iteration does is a function of the configuration, of `k`, and of the trainers' state before it (and of the
  rollouts that were generated ahead), so a run that was killed and resumed ends in the same numbers;
- metrics hold iteration `k` before its checkpoint exists, and a resumed run drops the records after its checkpoint.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from vime_metrics import Last, Mean, merge
from vime_train._errors import RunError, Terminated
from vime_train._job import Job
from vime_train.cluster import Cluster, terminated_by_exception
from vime_train.phases import (
    DivergenceGuard,
    Generation,
    Timer,
    WeightSync,
    Work,
    probe,
    scored_by_teacher,
    train_supervised,
)
from vime_train.report import MetricsLog, PlainProgress, open_sinks, write_last_iteration
from vime_train.rollout import assemble, evaluate, warm_up
from vime_train.state import AHEAD, BUFFER

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_train.cluster import EnginePool, TeacherPool, TrainerGroup
    from vime_train.config import RunConfig
    from vime_train.report import Progress
    from vime_train.rollout import Collected, IterationBatch, Rollout
    from vime_train.state import Checkpoint, RunDirectory


Figures: TypeAlias = "Mapping[str, Metric | float]"


def run(config: RunConfig, *, progress: Progress | None = None) -> Path:
    """Train as the configuration says, and return the run directory.

    Raises:
        ConfigError: if the run cannot work; nothing was started.
        StateError: if the run directory holds something already.
        ActorError: if a trainer died, or a process raised; `resume` goes on from the last checkpoint.
        WeightSyncError: if the engines do not hold the trainers' weights.
        RewardError, RolloutError: if the user's code failed; a checkpoint of the last whole iteration was written.
        OSError: if a file of the run could not be written.
    """
    return _run(Job.new(config, progress or PlainProgress()))


def resume(path: str | Path, *, progress: Progress | None = None) -> Path:
    """Go on with a run from its newest checkpoint, and return the run directory. Raises as `run` does."""
    return _run(Job.of_directory(path, progress or PlainProgress()))


def _run(job: Job) -> Path:
    model_path = job.model_path()
    config, longest = job.config, job.config.max_sample_tokens
    job.progress.say("starting Ray")
    with (
        job.directory.held(),
        _told_how_to_go_on(job.directory),
        terminated_by_exception(),
        Cluster(job.config, root=job.directory.root, logs=job.directory.logs) as cluster,
    ):
        job.progress.say(f"starting trainers: {config.layout.world_size}, engines: {config.engines_in_all}")
        trainers = cluster.begin_trainers(model_path)
        engines = cluster.begin_engines(model_path, max_model_len=longest)
        teacher = cluster.begin_teacher(max_model_len=longest)
        trainers.ready()
        with Generation(job.collector, engines) as generation:
            _Loop(job, cluster, trainers, engines, teacher, generation).run(job.checkpoint)
    return job.directory.root


@contextmanager
def _told_how_to_go_on(directory: RunDirectory) -> Iterator[None]:
    try:
        yield
    except (RunError, OSError, KeyboardInterrupt, Terminated) as error:
        latest = directory.checkpoints.latest()
        if latest is not None:
            error.add_note(f"Iteration {latest.iteration} is saved: go on with `vime-train resume {directory.root}`.")
        raise


class _Loop:
    """The state of a run between its iterations."""

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        trainers: TrainerGroup,
        engines: EnginePool,
        teacher: TeacherPool | None,
        generation: Generation,
    ) -> None:
        self._config = config = job.config
        self._directory = directory = job.directory
        self._source = job.source
        self._collector = job.collector
        self._evaluation_sets = job.evaluation_sets
        self._progress = job.progress
        self._trainers = trainers
        self._engines = engines
        self._teacher = teacher
        self._generation = generation
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
            self._wait_for_engines()
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
        self._divergence.saw(numbers, model="supervised")
        values = {f"supervised/{name}": value for name, value in numbers.items()}
        self._progress.advance("supervised", done, self._config.supervised.steps, values)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._progress.say(f"resuming after iteration {checkpoint.iteration}")
        self._trainers.load(checkpoint.trainer_path)
        self._collector.restore(checkpoint.data)
        self._collector.load_buffer(checkpoint.buffer_path)
        self._generation.load(checkpoint.ahead_path)
        self._iteration = checkpoint.iteration
        self._optimizer_steps = checkpoint.optimizer_steps
        self._wait_for_engines()
        self._sync.send(version=checkpoint.iteration)

    def _wait_for_engines(self) -> None:
        self._engines.ready()
        if self._teacher is not None:
            self._teacher.ready()
        gc.freeze()  # what was imported stays: collections need not look at it again in every iteration

    def _step(self, iteration: int) -> None:
        """One iteration of the algorithm."""
        timer, work = Timer(), self._work()
        with timer.phase("generate"), self._nothing_lost():
            collected = self._generation.take(version=self._sync.version)
        with timer.phase("check"):
            difference = self._check(collected)
        if self._config.rollout.one_step_off_policy and iteration < self._config.train.iterations:
            self._generation.begin(version=self._sync.version)
        rollouts = self._scored(collected.rollouts, timer)
        with timer.phase("plan"):
            batch = assemble(rollouts, self._config, iteration=iteration)
            write_last_iteration(self._directory.root, iteration, rollouts, batch, self._source)
        with timer.phase("train"):
            steps = self._train(batch, iteration)
        self._iteration = iteration
        self._optimizer_steps += len(steps)
        self._renew_reference()
        with timer.phase("generate"):
            hidden = self._generation.wait()
        with timer.phase("sync"):
            self._sync.send(version=iteration)
        with timer.phase("evaluate"):
            evaluation = self._evaluate() if self._is_due(self._config.evaluation.every) else {}
        idle = {"time/orchestration": work.orchestration(seconds=timer.seconds)} if work else {}
        figures = [collected.metrics, batch.metrics, difference, _over_steps(steps), evaluation, hidden, idle]
        self._record(iteration, [*figures, timer.metrics()])
        if self._is_due(self._config.checkpoint.every):
            self._save()

    def _work(self) -> Work | None:
        """What trainers and engines do from now on; one step off-policy they work at once, and it tells nothing."""
        if self._config.rollout.one_step_off_policy:
            return None
        groups = (self._trainers, self._engines, self._teacher)
        return Work([group for group in groups if group is not None])

    def _check(self, collected: Collected) -> Figures:
        """Whether both sides agree under the newest weights: on the rollouts, or on a probe where those are older."""
        if collected.weight_version is None:
            return {}
        samples = [sample for rollout in collected.rollouts for sample in rollout.samples]
        self._sync.require_version(samples, collected.weight_version)
        if self._config.rollout.one_step_off_policy:
            samples = probe(self._engines, self._source, self._config, version=self._sync.version)
        return self._sync.check(samples)

    def _scored(self, rollouts: Sequence[Rollout], timer: Timer) -> Sequence[Rollout]:
        """The rollouts, with the log-probs of the teacher where engines serve it."""
        if self._teacher is None:
            return rollouts
        with timer.phase("score"):
            return scored_by_teacher(rollouts, self._teacher)

    def _train(self, batch: IterationBatch, iteration: int) -> list[dict[str, float]]:
        if batch.schedule is None:
            self._progress.say(f"iteration {iteration}: no finished group has two different rewards")
            return []
        if self._config.debug.rollout_only:
            return []
        debug, place = self._config.debug, str(self._directory.profile(iteration))
        critic_only = iteration <= self._config.critic.warmup_iterations
        steps = self._trainers.train(
            batch.rank_batches,
            doing=f"train iteration {iteration}",
            critic_only=critic_only,
            trace_to=place if iteration in debug.profile_iterations else None,
            memory_to=place if iteration in debug.memory_snapshot_iterations else None,
        )
        for step in steps:
            self._divergence.saw(step, model="critic" if critic_only else "policy")
        return steps

    def _renew_reference(self) -> None:
        """Let the reference be the policy of now, where it follows at intervals."""
        every = self._config.algorithm.kl.reference_every
        if every and self._iteration % every == 0:
            self._trainers.renew_reference()

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
            self._generation.save(path.with_name(AHEAD))

    @contextmanager
    def _nothing_lost(self) -> Iterator[None]:
        """Save the last whole iteration when rollouts fail: the trainers still hold it."""
        try:
            yield
        except RunError:
            self._save()
            raise


def _over_steps(steps: Sequence[dict[str, float]]) -> dict[str, Metric]:
    """The mean over the optimizer steps of an iteration, and how many there were."""
    merged = [{f"train/{name}": Mean(value, 1) for name, value in step.items()} for step in steps]
    return {**merge(*merged), "train/optimizer_steps": Last(len(steps))}
