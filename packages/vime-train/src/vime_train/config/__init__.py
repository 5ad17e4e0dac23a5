"""What a run is: sections, files, overrides, and the checks made before anything starts. Imports no torch."""

from vime_train.config._load import ConfigError, load_config, shipped
from vime_train.config._sections import (
    AlgorithmSection,
    BatchingSection,
    CheckpointSection,
    ClusterSection,
    DataSection,
    EngineSection,
    EvaluationSection,
    LayoutSection,
    ModelSection,
    OptimizerSection,
    RolloutSection,
    RunConfig,
    Section,
    SupervisedSection,
    TrainSection,
)

__all__ = [
    "AlgorithmSection",
    "BatchingSection",
    "CheckpointSection",
    "ClusterSection",
    "ConfigError",
    "DataSection",
    "EngineSection",
    "EvaluationSection",
    "LayoutSection",
    "ModelSection",
    "OptimizerSection",
    "RolloutSection",
    "RunConfig",
    "Section",
    "SupervisedSection",
    "TrainSection",
    "load_config",
    "shipped",
]
