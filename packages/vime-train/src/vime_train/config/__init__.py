"""What a run is: sections, files, overrides, and the checks made before anything starts. Imports no torch."""

from vime_train.config._epochs import with_iterations
from vime_train.config._errors import ConfigError
from vime_train.config._launch import check_launch, launch_problems
from vime_train.config._load import load_config, shipped
from vime_train.config._machine import NEEDED_MODULES, Machine
from vime_train.config._native import data_parallel_fields, native_problems, transformer_fields
from vime_train.config._run_config import RunConfig
from vime_train.config._safetensors import stored_shapes
from vime_train.config._section import Section
from vime_train.config._sections_algorithm import (
    AlgorithmSection,
    CorrectionSection,
    CriticSection,
    DistillationSection,
    KLSection,
)
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
    EvaluationSet,
    TrackingSection,
)
from vime_train.config._sections_training import (
    HooksSection,
    OptimizerSection,
    TrainSection,
)
from vime_train.config._shape import ModelShape

__all__ = [
    "NEEDED_MODULES",
    "AlgorithmSection",
    "BatchingSection",
    "CheckpointSection",
    "ClusterSection",
    "ConfigError",
    "CorrectionSection",
    "CriticSection",
    "DataSection",
    "DebugSection",
    "DistillationSection",
    "EngineSection",
    "EvaluationSection",
    "EvaluationSet",
    "HooksSection",
    "KLSection",
    "LayoutSection",
    "Machine",
    "ModelSection",
    "ModelShape",
    "OptimizerSection",
    "RolloutSection",
    "RunConfig",
    "Section",
    "SupervisedSection",
    "TrackingSection",
    "TrainSection",
    "check_launch",
    "data_parallel_fields",
    "launch_problems",
    "load_config",
    "native_problems",
    "shipped",
    "stored_shapes",
    "transformer_fields",
    "with_iterations",
]
