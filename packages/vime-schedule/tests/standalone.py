"""A script for an environment with vime-schedule alone: it plans, and only the standard library comes along.

Run as `python -I standalone.py`; `nox -s standalone` does, on every Python found.
"""

import sys

before = set(sys.modules)
import vime_schedule as vs  # noqa: E402

loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
foreign = sorted(loaded - set(sys.stdlib_module_names) - {"vime_schedule"})
if foreign:
    sys.exit(f"import vime_schedule also imported {', '.join(foreign)}: only the standard library may come along.")

lengths = [900, 100, 400, 300, 700, 250, 250, 650]
plan = vs.build_dp_schedule(
    lengths,
    layout=vs.ParallelLayout(dp=2),
    batching=vs.TokenBudget(max_tokens_per_gpu=1000),
    global_batch_size=8,
)
plan.validate(lengths)
print(f"Python {sys.version.split()[0]}: {plan.steps[0].micro_batches}, fingerprint {plan.fingerprint[:12]}")
