"""The only room that imports Megatron-core: model, weights, losses, schedules, optimizer, checkpoints."""

from vime_train.megatron._cpu import import_scope

with import_scope():
    from vime_train.megatron._plan_check import PlanMismatchError
    from vime_train.megatron._skipped import SkippedStep
    from vime_train.megatron._trainer import Trainer

__all__ = ["PlanMismatchError", "SkippedStep", "Trainer"]
