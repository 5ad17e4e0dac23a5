"""The `vime-schedule` command: plan, report, explain, compare, simulate, what-if, calibrate.

Laws
- Exit code 0 is success and 2 is bad input, told in one line on stderr. 1 is kept for a reader that went away.
- Figures and plans go to stdout, everything else to stderr; with `--json` stdout is one JSON document and nothing else.
- The library never imports this package.
"""

from __future__ import annotations

from vime_schedule._cli._main import main

__all__ = ["main"]
