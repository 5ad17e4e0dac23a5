"""The sinks that a run names besides its own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from vime_train.plugins import CONTRACTS, PluginError, calling, load

if TYPE_CHECKING:
    from vime_metrics.sinks import Sink
    from vime_train.config import TrackingSection


def open_sinks(section: TrackingSection, run_dir: str | Path) -> tuple[Sink, ...]:
    """Make every sink of `tracking.sinks` for a run directory.

    Raises:
        PluginError: if an import path leads nowhere, or what it makes cannot write and close.
    """
    return tuple(_open(path, str(run_dir)) for path in section.sinks)


def _open(path: str, run_dir: str) -> Sink:
    factory = load(path, CONTRACTS["tracking.sinks"])
    with calling(f"tracking.sinks = {path!r}", lambda: f"run directory {run_dir!r}"):
        sink = factory(run_dir)
    missing = [name for name in ("write", "close") if not callable(getattr(sink, name, None))]
    if missing:
        raise PluginError(
            f"tracking.sinks = {path!r} made a {type(sink).__name__} without {' and '.join(missing)}: a sink has "
            "write(step, values) and close()."
        )
    return cast("Sink", sink)
