"""A doctor for loss functions: does the loss, or its gradient, depend on how the batch was split?

`check` runs a loss through random splits over micro-batches x DP x CP on the CPU, all ranks in one process, and
compares value and gradient with those of the same loss on the uncut batch in fp64. It prints which law holds, and for
each that does not the smallest split that shows it. ``python -m vime_cp.invariance module:function`` does the same from
a shell.
"""

from ._case import Case, SampleSpec, Split
from ._check import check
from ._evaluate import Combine, LossFunction
from ._laws import LAWS, Law
from ._report import Failure, LawResult, Report
from ._shard import Shard, Step

__all__ = [
    "LAWS",
    "Case",
    "Combine",
    "Failure",
    "Law",
    "LawResult",
    "LossFunction",
    "Report",
    "SampleSpec",
    "Shard",
    "Split",
    "Step",
    "check",
]
