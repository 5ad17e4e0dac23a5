"""One reduction, from the metrics of each rank to the numbers of all.

Laws:
- M2: the result equals that of the pooled data, whatever rank held what, including ranks that hold nothing;
- M5: a step whose keys occurred before costs one sum, one maximum where some metric needs it, and one second sum where
  some metric needs it: at most three collectives however many metrics there are, and no name among them;
- an error of one rank (a clash, a NaN that is fatal, a bad value) is raised by every rank, with its rank and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Array
from vime_metrics._reduction._agreement import TOKEN_SIZE, GroupMemory, token_part
from vime_metrics._reduction._describe import Local
from vime_metrics._reduction._plan import Parts, Plan
from vime_metrics._reduction._requests import Steps, largest, summed
from vime_metrics._reduction._schema import NONFINITE_SUFFIX, Options
from vime_metrics._sums import Count


def reduction(step: Mapping[str, Metric], memory: GroupMemory, options: Options) -> Steps[dict[str, float] | None]:
    """Name to number on every rank, or on the rank `options.group_dst` alone."""
    local = _describe(step, memory, options)
    plan, mine, first = yield from _first_sums(local, memory, options)
    dst = options.group_dst
    plan.check(first)
    peaks = plan.peaks(mine)
    if peaks.size:
        peaks = yield from largest(peaks, None if plan.has_second else dst)
    seconds = plan.seconds(mine, first, peaks)
    sizes = [part.size for part in seconds]
    if any(sizes):
        reduced = yield from summed(np.concatenate(seconds), dst)
        seconds = np.split(reduced, list(accumulate(sizes))[:-1])
    return plan.finish(first, peaks, seconds) if dst in (None, memory.rank) else None


def _first_sums(local: Local, memory: GroupMemory, options: Options) -> Steps[tuple[Plan, Parts, Array]]:
    """Sum the token together with what the expected plan would send; send again where the expectation was wrong.

    The token is sent again as well: sums of equal buffers are rounded alike, so it never shows whether a plan was new.
    """
    expected = memory.expected()
    mine, out = _first_part(local, memory, expected)
    reduced = yield from summed(out)
    token = reduced[:TOKEN_SIZE].tobytes()
    plan = memory.find(token)
    if plan is None:
        plan = yield from memory.agree(local.schema, token, options)
    if plan is not expected:
        mine, out = _first_part(local, memory, plan)
        reduced = yield from summed(out)
    return plan, mine, reduced[TOKEN_SIZE:]


def _first_part(local: Local, memory: GroupMemory, plan: Plan | None) -> tuple[Parts, Array]:
    """This rank's token, followed by its sums if `plan` was made for what it holds, by zeros otherwise."""
    out = np.zeros(TOKEN_SIZE + (plan.first_size if plan else 0))
    out[:TOKEN_SIZE] = token_part(local.schema.digest, memory.rank)
    if plan is None or plan.digest != local.schema.digest:
        return [], out
    mine = plan.pick(local)
    plan.write_first(mine, out[TOKEN_SIZE:])
    return mine, out


def _describe(step: Mapping[str, Metric], memory: GroupMemory, options: Options) -> Local:
    """The step with its counts of NaN and infinity as metrics; what is wrong with it becomes its schema."""
    try:
        local = memory.describer.describe(step, options)
        if any([metric.nonfinite for metric in local.values]):  # noqa: C419 - a generator takes twice as long
            return memory.describer.describe(_with_nonfinite(step, options), options)
        return local
    except MetricError as error:
        return memory.describer.failure(error, options)


def _with_nonfinite(step: Mapping[str, Metric], options: Options) -> dict[str, Metric]:
    spoiled = {key: metric.nonfinite for key, metric in step.items() if metric.nonfinite}
    if options.nonfinite == "error":
        named = ", ".join(f"{key!r} ({number})" for key, number in spoiled.items())
        raise MetricError(f"NaN or infinite values in {named}; reduce with nonfinite='keep' or 'drop' to go on.")
    counts = {f"{key}{NONFINITE_SUFFIX}": Count(number) for key, number in spoiled.items()}
    for name in counts:
        if name in step:
            raise MetricError(f"metric {name!r} has the name under which non-finite values are counted: rename it.")
    return {**step, **counts}
