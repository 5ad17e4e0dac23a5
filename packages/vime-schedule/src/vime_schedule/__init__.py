"""Plan RL micro-batches over data, pipeline and context parallel ranks: exact, capped, balanced, explained.

>>> from vime_schedule import ParallelLayout, TokenBudget, build_dp_schedule
>>> schedule = build_dp_schedule(
...     [700, 300, 800, 200, 500, 500, 900, 100],
...     layout=ParallelLayout(dp=2),
...     batching=TokenBudget(max_tokens_per_gpu=1000),
...     global_batch_size=8,
... )
>>> schedule.report().total.imbalance
1.0
"""

from vime_schedule._batching import FixedSize, TokenBudget
from vime_schedule._build import build_dp_schedule
from vime_schedule._costs import Calibration, FlopsCost, PolynomialCost, calibrate, token_cost
from vime_schedule._errors import ScheduleError
from vime_schedule._forward import ForwardRankSchedule, ForwardSchedule, build_forward_schedule
from vime_schedule._global_batch import compute_dynamic_global_batch_size
from vime_schedule._layout import ParallelLayout
from vime_schedule._pipeline import PipelineTimeline, pipeline_makespan, simulate
from vime_schedule._report import ScheduleReport, StepReport
from vime_schedule._schedule import RankSchedule, Schedule
from vime_schedule._set_cost import SetCost, SharedPrefixCost
from vime_schedule._step import Reason, StepBounds, StepSchedule

__all__ = [
    "Calibration",
    "FixedSize",
    "FlopsCost",
    "ForwardRankSchedule",
    "ForwardSchedule",
    "ParallelLayout",
    "PipelineTimeline",
    "PolynomialCost",
    "RankSchedule",
    "Reason",
    "Schedule",
    "ScheduleError",
    "ScheduleReport",
    "SetCost",
    "SharedPrefixCost",
    "StepBounds",
    "StepReport",
    "StepSchedule",
    "TokenBudget",
    "build_dp_schedule",
    "build_forward_schedule",
    "calibrate",
    "compute_dynamic_global_batch_size",
    "pipeline_makespan",
    "simulate",
    "token_cost",
]
