"""Reducing metrics over a torch process group. Needs torch: `pip install 'vime-metrics[torch]'`."""

try:
    import torch  # noqa: F401 - the one place that tells what to install
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "vime_metrics.torch needs torch: pip install 'vime-metrics[torch]'", name="torch"
    ) from error

from vime_metrics.torch._fetch import fetch
from vime_metrics.torch._reduce import all_reduce, reduce

__all__ = ["all_reduce", "fetch", "reduce"]
