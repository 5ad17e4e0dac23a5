"""After a collective failed: who is still there?

The ranks that gave up sign in at the store of the process group, which is no collective and costs nothing until
then, and read who else has. Whoever is missing died, or never came to this reduction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import torch.distributed as dist

GRACE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05


def missing_ranks(group: dist.ProcessGroup, call: int) -> list[int] | None:
    """Ranks of the group that did not sign in for its reduction number `call`; None if the store is gone as well."""
    names = [f"vime_metrics/{call}/{rank}" for rank in range(group.size())]
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        store = group.get_group_store()
        store.set(names[group.rank()], "here")
        while True:
            missing = [rank for rank, name in enumerate(names) if not store.check([name])]
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(_POLL_SECONDS)
    except RuntimeError:
        return None


def explain(missing: Sequence[int] | None, ranks: Sequence[int], what: str, seconds: float, cause: str) -> str:
    """The text of the error; `ranks` are the global ranks of the group."""
    if missing is None:
        who = "the store of the process group is gone too, so the rank that hosts it (usually global rank 0) has died"
    elif missing:
        named = ", ".join(f"rank {rank} (global rank {ranks[rank]})" for rank in missing)
        who = f"{named} of the group died or never came within {seconds:g} s"
    else:
        who = "every rank of the group answered afterwards, so one came late or the network failed"
    return (
        f"the reduction of {what} did not finish: {who}. Every rank must make the call, with an empty step if it has "
        f"nothing; the group cannot be used any more. The collective said: {cause}"
    )
