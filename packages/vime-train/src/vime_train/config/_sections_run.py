"""How it runs: engines, evaluation, tracking, checkpoints, machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vime_train.config._section import Count, Positive, Seconds, Section


class EngineSection(Section):
    """The rollout engines (vLLM).

    An engine that dies is started again, up to `max_restarts` times. Each is asked for a sign of life every
    `health_interval_seconds`, in calls and between them; one that gives none within `health_timeout_seconds` is killed
    and started again too. `max_log_prob_difference` is the largest difference between the engines' and the trainers'
    log-probs of a sampled token that a run goes on with. The check costs a forward pass over what was sampled, or over
    `max_checked_samples` samples of every sync.

    With `tensor_parallel_size` above 1 that many processes serve an engine, each a part of every layer.
    """

    engines: Positive = 1
    tensor_parallel_size: Positive = 1
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_num_seqs: Positive = 512
    max_num_batched_tokens: Positive = 16384
    kv_cache_gib: Positive = 1
    threads: Positive = 1
    max_restarts: Count = 3
    start_timeout_seconds: Seconds = 300.0
    generate_timeout_seconds: Seconds = 600.0
    health_interval_seconds: Seconds = 30.0
    health_timeout_seconds: Seconds = 30.0
    max_log_prob_difference: Annotated[float, Field(gt=0)] = 1e-3
    max_checked_samples: Positive | None = None


class EvaluationSet(Section):
    """A further set of problems: a data source with its options, and how it is asked.

    `samples` answers are drawn to each problem; with more than one, pass@k is reported, and `temperature` is above 0.
    `top_p` below 1 draws from the likeliest tokens that together have this probability.
    """

    source: str
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    problems: Positive = 100
    split: Literal["held_out", "validation"] = "held_out"
    samples: Positive = 1
    temperature: Annotated[float, Field(ge=0)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class EvaluationSection(Section):
    """Greedy accuracy on problems that are never trained on, and further sets, reported as `eval/NAME/...`.

    `every = 0` evaluates only before the first and after the last iteration; `before_training = false` leaves the first
    one out. Tune on `split = "validation"`, and the
    figures of `"held_out"` stay honest.
    """

    problems: Count = 200
    every: Count = 10
    before_training: bool = True
    split: Literal["held_out", "validation"] = "held_out"
    sets: dict[str, EvaluationSet] = Field(default_factory=dict)


class TrackingSection(Section):
    """Where the figures go besides `metrics.jsonl`: import paths of factories that make a sink from a run directory."""

    sinks: tuple[str, ...] = ()


class DebugSection(Section):
    """Take a run apart: generation without training, or training on rollouts that were generated before.

    `save_rollouts` writes the rollouts of every iteration into the run directory's `rollouts/`. `load_rollouts` names
    such a directory of another run and trains on what it holds, generating nothing. `rollout_only` trains nothing.

    In `profile_iterations` every trainer rank writes a trace of torch's profiler into the run directory's `profile/`,
    in `memory_snapshot_iterations` (GPUs only) the history of its CUDA memory.
    """

    save_rollouts: bool = False
    load_rollouts: str | None = None
    rollout_only: bool = False
    profile_iterations: tuple[Positive, ...] = ()
    memory_snapshot_iterations: tuple[Positive, ...] = ()


class CheckpointSection(Section):
    """When a checkpoint is written (iterations; 0: only at the end) and how many are kept."""

    every: Count = 10
    keep: Positive = 2


class ClusterSection(Section):
    """Where the run lives. `address = "local"` starts Ray on this machine, on loopback only.

    `gpus_per_process` is what Ray reserves for each trainer rank and each process of an engine; 0 runs on CPUs.
    """

    address: str = "local"
    gpus_per_process: Annotated[float, Field(ge=0)] = 0
    start_timeout_seconds: Seconds = 120.0
    train_timeout_seconds: Seconds = 1800.0
