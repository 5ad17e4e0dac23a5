"""Rollout engines: the protocol the trainer asks for, and vLLM behind it."""

from vime_train.engine._protocol import Completion, Engine, FinishReason, GenerationRequest, ScoredSequence
from vime_train.engine._sampling import EngineError, check_requests, spread_seed

__all__ = [
    "Completion",
    "Engine",
    "EngineError",
    "FinishReason",
    "GenerationRequest",
    "ScoredSequence",
    "check_requests",
    "spread_seed",
]
