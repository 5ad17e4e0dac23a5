"""A run's configuration: all its sections.

Always true of a loaded configuration:

- it is frozen, and an unknown key is an error;
- every default stands in its section and nowhere else;
- importing it imports neither torch, Ray, vLLM nor Megatron.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from vime_train.config._section import Count, Section
from vime_train.config._sections_algorithm import AlgorithmSection, CriticSection
from vime_train.config._sections_data import (
    DataSection,
    RolloutSection,
    SupervisedSection,
)
from vime_train.config._sections_model import (
    BatchingSection,
    LayoutSection,
    ModelSection,
)
from vime_train.config._sections_run import (
    CheckpointSection,
    ClusterSection,
    DebugSection,
    EngineSection,
    EvaluationSection,
    TrackingSection,
)
from vime_train.config._sections_training import (
    HooksSection,
    OptimizerSection,
    TrainSection,
)


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
    hooks: HooksSection = HooksSection()
    critic: CriticSection = CriticSection()
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
    def engines_in_all(self) -> int:
        """Engines that generate, and those that serve a teacher."""
        return self.engine.engines + self.algorithm.distillation.engines

    @property
    def engine_processes(self) -> int:
        """Processes that serve these engines, each on a GPU where there are any."""
        return self.engines_in_all * self.engine.tensor_parallel_size

    @property
    def rollouts_per_iteration(self) -> int:
        """Rollouts that one iteration generates, before any filter."""
        return self.rollout.prompts_per_iteration * self.rollout.rollouts_per_prompt

    @property
    def max_sample_tokens(self) -> int:
        """The longest sample that can arise: a full prompt, full answers, and a full retry before each further one."""
        answers = self.rollout.max_attempts * self.rollout.max_new_tokens
        return self.data.max_prompt_tokens + answers + (self.rollout.max_attempts - 1) * self.rollout.max_retry_tokens
