"""A plan as canonical JSON, and back.

Laws
- Keys are sorted and numbers are written in their shortest exact form, so equal plans are equal bytes.
- What is read back obeys every law of `_laws`; anything else is a ScheduleError that names the field.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from vime_schedule._batching import Batching, FixedSize, TokenBudget
from vime_schedule._errors import ScheduleError
from vime_schedule._json_fields import Fields
from vime_schedule._laws import check_laws
from vime_schedule._layout import ParallelLayout
from vime_schedule._samples import check_total_lengths
from vime_schedule._schedule import Schedule
from vime_schedule._step import Reason, StepBounds, StepSchedule

FORMAT = "vime-schedule/1"


def dump_schedule(schedule: Schedule) -> str:
    """The canonical JSON of a plan."""
    plan = {
        "format": FORMAT,
        "layout": asdict(schedule.layout),
        "batching": {"kind": type(schedule.batching).__name__, **asdict(schedule.batching)},
        "objective": schedule.objective,
        "total_lengths": schedule.total_lengths,
        "rollouts": schedule.rollouts,
        "signatures": schedule.signatures,
        "steps": [_dump_step(step) for step in schedule.steps],
        "dropped": schedule.dropped,
        "oversize": schedule.oversize,
    }
    return json.dumps(plan, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _dump_step(step: StepSchedule) -> dict[str, object]:
    return {
        "micro_batches": step.micro_batches,
        "costs": step.costs,
        "global_batch_size": step.global_batch_size,
        "bounds": asdict(step.bounds),
        "reasons": [asdict(reason) for reason in step.reasons],
    }


def load_schedule(text: str) -> Schedule:
    """Read and check a plan."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"the plan is not JSON ({error}): pass the text that `to_json` wrote, whole.") from error
    plan = Fields("plan", raw)
    written = plan.text("format")
    if written != FORMAT:
        raise ScheduleError(f"the plan has format {written!r} but {FORMAT!r} is read here: plan again.")
    schedule = Schedule(
        layout=_load_layout(plan.fields("layout")),
        batching=_load_batching(plan.fields("batching")),
        objective=plan.text("objective"),
        total_lengths=check_total_lengths(plan.ints("total_lengths")),
        rollouts=plan.ints("rollouts"),
        signatures=None if plan.value("signatures") is None else plan.ints("signatures"),
        steps=tuple(map(_load_step, plan.each("steps"))),
        dropped=plan.ints("dropped"),
        oversize=plan.ints("oversize"),
    )
    for name in ("rollouts",) if schedule.signatures is None else ("rollouts", "signatures"):
        if len(getattr(schedule, name)) != len(schedule.total_lengths):
            raise ScheduleError(f"plan.{name} must have one entry per sample: pass the text that `to_json` wrote.")
    check_laws(schedule, schedule.total_lengths)
    return schedule


def _load_layout(fields: Fields) -> ParallelLayout:
    group = "microbatch_group_size_per_vp_stage"
    return ParallelLayout(
        **{name: fields.whole(name) for name in ("dp", "cp", "tp", "pp", "vpp")},
        microbatch_group_size_per_vp_stage=None if fields.value(group) is None else fields.whole(group),
    )


def _load_batching(fields: Fields) -> Batching:
    kind = fields.text("kind")
    if kind == "FixedSize":
        return FixedSize(micro_batch_size=fields.whole("micro_batch_size"))
    if kind != "TokenBudget":
        raise ScheduleError(f"plan.batching.kind is {kind!r}: it must be 'TokenBudget' or 'FixedSize'.")
    return TokenBudget(
        **{name: fields.whole(name) for name in ("max_tokens_per_gpu", "sequence_align", "pack_align")},
        cp_layout=fields.choice("cp_layout", ("zigzag", "contiguous")),
    )


def _load_step(fields: Fields) -> StepSchedule:
    bounds = fields.fields("bounds")
    return StepSchedule(
        micro_batches=fields.grid("micro_batches"),
        costs=fields.table("costs", like=fields.grid("micro_batches")),
        global_batch_size=fields.whole("global_batch_size"),
        bounds=StepBounds(
            micro_batches=bounds.whole("micro_batches"),
            **{name: bounds.number(name) for name in ("step", "lockstep", "cheapest")},
        ),
        reasons=tuple(
            Reason(rule=reason.text("rule"), micro_batches=reason.whole("micro_batches"), why=reason.text("why"))
            for reason in fields.each("reasons")
        ),
    )
