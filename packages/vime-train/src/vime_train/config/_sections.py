"""The sections of a run's configuration: what each field means, its unit, and its one default.

Always true of a loaded configuration:

- it is frozen, and an unknown key is an error;
- every default stands here and nowhere else;
- importing it imports neither torch, Ray, vLLM nor Megatron.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class ModelSection(Section):
    """Which model is trained.

    `path` is a Hugging Face directory. Without one the program makes a small Qwen3 model of the sizes below, with a
    character tokenizer, and saves it in the run directory.
    """

    path: str | None = None
    hidden_size: Positive = 64
    intermediate_size: Positive = 192
    num_hidden_layers: Positive = 2
    num_attention_heads: Positive = 4
    num_key_value_heads: Positive = 2
    head_dim: Positive = 32
    max_position_embeddings: Positive = 512
    init_std: Annotated[float, Field(gt=0)] = 0.1


class LayoutSection(Section):
    """How the trainer is cut across ranks; every field counts ranks or stages."""

    dp: Positive = 2
    cp: Positive = 1
    tp: Positive = 1
    pp: Positive = 1
    vpp: Positive = 1
    microbatch_group_size_per_vp_stage: Positive | None = None

    @property
    def world_size(self) -> int:
        """Trainer ranks in all."""
        return self.dp * self.cp * self.tp * self.pp


class BatchingSection(Section):
    """How samples become micro-batches; the names are those of `vime_schedule.build_dp_schedule`."""

    max_tokens_per_gpu: Positive = 4096
    forward_max_tokens_per_gpu: Positive | None = None
    sequence_align: Positive = 1
    pack_align: Positive = 1
    objective: Literal["step", "lockstep", "balanced", "pipeline"] = "balanced"
    oversize: Literal["alone", "drop", "error"] = "error"
    shortage: Literal["error", "fill"] = "fill"


class DataSection(Section):
    """Where problems come from: the import path of a data source, and what it is called with.

    `max_prompt_tokens` bounds the prompts: a source leaves longer ones out and counts them.
    """

    source: str = "vime_train.data.arithmetic:ArithmeticSums"
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    max_prompt_tokens: Positive = 64


class SupervisedSection(Section):
    """Supervised training on worked answers before the first rollout; `steps = 0` skips it."""

    steps: Count = 0
    batch_size: Positive = 32
    lr: Annotated[float, Field(gt=0)] = 4e-3
    warmup_steps: Count = 30
    decay_steps: Positive = 700


class RolloutSection(Section):
    """How prompts become rollouts.

    One iteration draws `prompts_per_iteration` prompts and runs `rollouts_per_prompt` rollouts of each.
    A rollout whose answer scores less than `solved_score` may try again, up to `max_attempts` answers; each answer is a
    training sample and all answers of a rollout share its id and its reward. The score of attempt k counts
    `retry_reward ** (k - 1)`. `max_retry_tokens` bounds what a retry adds to the conversation besides the answer.

    `group_filter` accepts or rejects a whole group of rollouts; up to `max_draws` times `prompts_per_iteration` prompts
    are drawn until enough groups are accepted. `drop_zero_variance` leaves groups without variance out of the batch,
    with the weights of the rest scaled as if they were in it. `sample_filter` takes an iteration's rollouts and returns
    those to train on. Functions are import paths, `package.module:name`.

    Rewards come from one of `group_reward`, `reward`, the server at `reward_url` (asked `reward_attempts` times, for
    `reward_concurrency` problems at once), or else from the data source's own score.
    """

    prompts_per_iteration: Positive = 32
    rollouts_per_prompt: Positive = 16
    max_attempts: Positive = 2
    retry_reward: Fraction = 0.5
    solved_score: float = 1.0
    max_retry_tokens: Count = 1
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Positive = 64
    function: str = "vime_train.rollout.attempts:generate_rollouts"
    reward: str | None = None
    group_reward: str | None = None
    reward_url: Annotated[str, Field(pattern="^https?://")] | None = None
    reward_timeout_seconds: Seconds = 30.0
    reward_attempts: Positive = 5
    reward_concurrency: Positive = 16
    group_filter: str | None = None
    sample_filter: str | None = None
    max_draws: Positive = 1
    drop_zero_variance: bool = True


class AlgorithmSection(Section):
    """The estimator and the loss; each name is one of `vime_cp`.

    `advantage_function` replaces the estimator: an import path of a function of the rollouts and this section.
    `loss_function` replaces the loss: one number per token of a packed micro-batch, from its log-probs, the old ones,
    and the advantages; what it returns is weighted by `aggregation`.
    """

    advantage: Literal["grpo"] = "grpo"
    advantage_function: str | None = None
    divide_by_std: bool = True
    loss: Literal["policy"] = "policy"
    loss_function: str | None = None
    clip_low: Annotated[float, Field(ge=0)] = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    aggregation: Literal["rollout_mean", "sample_mean", "token_mean", "prompt_mean"] = "rollout_mean"
    old_log_probs: Literal["rollout", "recompute"] = "rollout"


class OptimizerSection(Section):
    """Adam and its schedule. Learning rates of the RL part; the supervised part has its own.

    Any other field of Megatron's `OptimizerConfig` may stand here under its own name: see `native`.
    """

    model_config = ConfigDict(extra="allow")

    lr: Annotated[float, Field(gt=0)] = 3e-4
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.98
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip_grad: Annotated[float, Field(gt=0)] = 1.0

    @property
    def native(self) -> dict[str, JsonValue]:
        """The other fields of Megatron's `OptimizerConfig` that were given, checked at launch by name and type."""
        return dict(self.model_extra or {})


class TrainSection(Section):
    """How long to train, and how many rollouts make one optimizer step.

    A step whose gradients are not finite is skipped; `max_skipped_steps` of them in a row end the run.
    """

    iterations: Positive = 40
    global_batch_size: Positive = 128
    max_skipped_steps: Positive = 8
    calculate_per_token_loss: bool = False


class EngineSection(Section):
    """The rollout engines (vLLM).

    An engine that dies is started again, up to `max_restarts` times. `max_log_prob_difference` is the largest
    difference between the engines' and the trainers' log-probs of a sampled token that a run goes on with.
    """

    engines: Positive = 1
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_num_seqs: Positive = 512
    max_num_batched_tokens: Positive = 16384
    kv_cache_gib: Positive = 1
    threads: Positive = 1
    max_restarts: Count = 3
    start_timeout_seconds: Seconds = 300.0
    generate_timeout_seconds: Seconds = 600.0
    max_log_prob_difference: Annotated[float, Field(gt=0)] = 1e-3


class EvaluationSection(Section):
    """Greedy accuracy on problems that are never trained on.

    `every = 0` evaluates only before the first and after the last iteration. Tune on `split = "validation"`, and the
    figures of `"held_out"` stay honest.
    """

    problems: Count = 200
    every: Count = 10
    split: Literal["held_out", "validation"] = "held_out"


class TrackingSection(Section):
    """Where the figures go besides `metrics.jsonl`: import paths of factories that make a sink from a run directory."""

    sinks: tuple[str, ...] = ()


class DebugSection(Section):
    """Take a run apart: generation without training, or training on rollouts that were generated before.

    `save_rollouts` writes the rollouts of every iteration into the run directory's `rollouts/`. `load_rollouts` names
    such a directory of another run and trains on what it holds, generating nothing. `rollout_only` trains nothing.
    """

    save_rollouts: bool = False
    load_rollouts: str | None = None
    rollout_only: bool = False


class CheckpointSection(Section):
    """When a checkpoint is written (iterations; 0: only at the end) and how many are kept."""

    every: Count = 10
    keep: Positive = 2


class ClusterSection(Section):
    """Where the run lives. `address = "local"` starts Ray on this machine, on loopback only.

    `gpus_per_process` is what Ray reserves for each trainer rank and each engine; 0 runs on CPUs.
    """

    address: str = "local"
    gpus_per_process: Annotated[float, Field(ge=0)] = 0
    start_timeout_seconds: Seconds = 120.0
    train_timeout_seconds: Seconds = 1800.0


class RunConfig(Section):
    """Everything a run is told.

    `[megatron]` holds fields of Megatron's `TransformerConfig` and `DistributedDataParallelConfig`, `[vllm]` those of
    vLLM's `EngineArgs`, under the vendors' own names; both are checked at launch against the installed sources.
    """

    name: str = "run"
    seed: Count = 0
    run_dir: str = "runs/run"
    model: ModelSection = ModelSection()
    layout: LayoutSection = LayoutSection()
    batching: BatchingSection = BatchingSection()
    data: DataSection = DataSection()
    supervised: SupervisedSection = SupervisedSection()
    rollout: RolloutSection = RolloutSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    optimizer: OptimizerSection = OptimizerSection()
    train: TrainSection = TrainSection()
    engine: EngineSection = EngineSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoint: CheckpointSection = CheckpointSection()
    tracking: TrackingSection = TrackingSection()
    debug: DebugSection = DebugSection()
    cluster: ClusterSection = ClusterSection()
    megatron: dict[str, JsonValue] = Field(default_factory=dict)
    vllm: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def on_gpus(self) -> bool:
        """Whether trainers and engines run on GPUs."""
        return self.cluster.gpus_per_process > 0

    @property
    def rollouts_per_iteration(self) -> int:
        """Rollouts that one iteration generates, before any filter."""
        return self.rollout.prompts_per_iteration * self.rollout.rollouts_per_prompt

    @property
    def max_sample_tokens(self) -> int:
        """The longest sample that can arise: a full prompt, full answers, and a full retry before each further one."""
        answers = self.rollout.max_attempts * self.rollout.max_new_tokens
        return self.data.max_prompt_tokens + answers + (self.rollout.max_attempts - 1) * self.rollout.max_retry_tokens
