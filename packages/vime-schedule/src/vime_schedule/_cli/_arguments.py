"""The options that several commands share, and the values they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vime_schedule._batching import Batching, FixedSize, TokenBudget
from vime_schedule._build import build_dp_schedule
from vime_schedule._cli._costs import parse_cost
from vime_schedule._cli._lengths import Lengths, read_lengths
from vime_schedule._cli._numbers import whole_numbers
from vime_schedule._errors import ScheduleError
from vime_schedule._layout import ParallelLayout
from vime_schedule._schedule import Schedule

LAYOUT_OPTIONS = {
    "dp": "data-parallel ranks",
    "cp": "context-parallel ranks",
    "tp": "tensor-parallel ranks",
    "pp": "pipeline stages",
    "vpp": "model chunks per pipeline rank",
}
OBJECTIVES = ("balanced", "step", "lockstep", "pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Everything a plan is made from except its layout, batching and objective."""

    lengths: Lengths
    cost: Callable[[int], float]
    global_batch_size: int | list[int]
    remainder: Any
    oversize: Any
    shortage: Any
    micro_batch_order: Any

    def plan(self, *, layout: ParallelLayout, batching: Batching, objective: Any) -> Schedule:
        """Plan the samples for one layout, batching and objective."""
        return build_dp_schedule(
            self.lengths.total_lengths,
            layout=layout,
            batching=batching,
            global_batch_size=self.global_batch_size,
            rollout_ids=self.lengths.rollout_ids,
            cost=self.cost,
            objective=objective,
            remainder=self.remainder,
            oversize=self.oversize,
            shortage=self.shortage,
            signatures=self.lengths.signatures,
            micro_batch_order=self.micro_batch_order,
        )


def add_length_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is planned: the file and the names of its fields."""
    parser.add_argument("lengths", metavar="LENGTHS", help="JSONL, JSON, CSV or plain numbers; - is stdin")
    parser.add_argument("--length-field", metavar="NAME", help="field with a sample's tokens; A+B adds two fields")
    parser.add_argument(
        "--rollout-field", metavar="NAME", help="field with the rollout id (default: rollout_id if there)"
    )
    parser.add_argument("--signature-field", metavar="NAME", help="field that micro-batches of one index must share")


def add_layout_arguments(parser: argparse.ArgumentParser, kind: Callable[[str], Any] | None = None) -> None:
    """Add the sizes of the mesh; `kind` parses each of the swept ones."""
    group = parser.add_argument_group("layout")
    for name, meaning in LAYOUT_OPTIONS.items():
        group.add_argument(f"--{name}", type=kind or int, default=[1] if kind else 1, metavar="N", help=meaning)
    group.add_argument(
        "--group",
        "--microbatch-group-size-per-vp-stage",
        type=int,
        dest="group",
        metavar="N",
        help="micro-batches a chunk runs in a row with --vpp (default: pp)",
    )


def add_batching_arguments(parser: argparse.ArgumentParser, kind: Callable[[str], Any] | None = None) -> None:
    """Add the bound on a micro-batch."""
    group = parser.add_argument_group("micro-batches (give one of the first two)")
    group.add_argument(
        "--max-tokens-per-gpu", type=kind or int, metavar="N", help="token budget of one GPU, padding counted"
    )
    group.add_argument("--micro-batch-size", type=int, metavar="N", help="samples per micro-batch instead of a budget")
    group.add_argument("--sequence-align", type=int, default=1, metavar="N", help="pad every sequence to a multiple")
    group.add_argument("--pack-align", type=int, default=1, metavar="N", help="pad every micro-batch to a multiple")
    group.add_argument("--cp-layout", choices=("zigzag", "contiguous"), default="zigzag", help="how --cp cuts tokens")


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how the batch is cut into steps, what samples cost, and the policies."""
    group = parser.add_argument_group("steps, cost and policies")
    group.add_argument(
        "--global-batch-size",
        metavar="N[,N...]",
        help="rollouts per step, or one number per step (default: all in one)",
    )
    group.add_argument(
        "--cost",
        default="tokens",
        metavar="MODEL",
        help="tokens, polynomial:A,B,C, flops:CONFIG.json or measured:CALIBRATION.json (default: tokens)",
    )
    policies = {
        "remainder": (
            ("step", "spread", "drop", "error"),
            "rollouts beyond the last full step; spread enlarges steps",
        ),
        "oversize": (("alone", "drop", "error"), "samples above the budget"),
        "shortage": (("error", "fill"), "fewer samples than micro-batches"),
        "micro-batch-order": (
            ("pipeline", "longest_first"),
            "order for a short pipeline or for the allocator",
        ),
    }
    for name, (choices, meaning) in policies.items():
        meaning = f"{meaning}: {', '.join(choices)} (default: {choices[0]})"
        group.add_argument(f"--{name}", choices=choices, default=choices[0], metavar="POLICY", help=meaning)


def add_objective_argument(parser: argparse.ArgumentParser) -> None:
    """Add what the plan minimises."""
    parser.add_argument(
        "--objective", choices=OBJECTIVES, default="balanced", help="what to minimise (default: balanced)"
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def request_from(arguments: argparse.Namespace) -> PlanRequest:
    """Read the samples and options of a planning command."""
    lengths = read_lengths(
        arguments.lengths,
        length_field=arguments.length_field,
        rollout_field=arguments.rollout_field,
        signature_field=arguments.signature_field,
    )
    return PlanRequest(
        lengths=lengths,
        cost=parse_cost(arguments.cost),
        global_batch_size=_global_batch_size(arguments.global_batch_size, lengths),
        remainder=arguments.remainder,
        oversize=arguments.oversize,
        shortage=arguments.shortage,
        micro_batch_order=arguments.micro_batch_order,
    )


def layout_from(arguments: argparse.Namespace) -> ParallelLayout:
    """Return the one layout that was given."""
    sizes = {name: getattr(arguments, name) for name in LAYOUT_OPTIONS}
    return ParallelLayout(**sizes, microbatch_group_size_per_vp_stage=arguments.group)


def batching_from(arguments: argparse.Namespace, max_tokens_per_gpu: int | None) -> Batching:
    """Return the bound on a micro-batch, from exactly one of the two ways to give it."""
    if (max_tokens_per_gpu is None) == (arguments.micro_batch_size is None):
        given = "both" if max_tokens_per_gpu is not None else "neither"
        raise ScheduleError(f"{given} of --max-tokens-per-gpu and --micro-batch-size given: give exactly one.")
    if max_tokens_per_gpu is None:
        return FixedSize(micro_batch_size=arguments.micro_batch_size)
    return TokenBudget(
        max_tokens_per_gpu=max_tokens_per_gpu,
        sequence_align=arguments.sequence_align,
        pack_align=arguments.pack_align,
        cp_layout=arguments.cp_layout,
    )


def _global_batch_size(text: str | None, lengths: Lengths) -> int | list[int]:
    """Return rollouts per step; without the option every rollout goes into one step."""
    if text is None:
        return len(lengths.total_lengths if lengths.rollout_ids is None else set(lengths.rollout_ids))
    sizes = whole_numbers(text, "--global-batch-size")
    return sizes[0] if len(sizes) == 1 else sizes
