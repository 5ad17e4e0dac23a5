"""Which packages a change touches, with everything that depends on them, as a JSON list for a job matrix.

    git diff --name-only BASE HEAD | python .github/changed_packages.py

>>> touched(["packages/vime-cp/src/vime_cp/_gather.py"])
['vime-cp', 'vime-train']
>>> touched(["packages/vime-train/README.md"])
['vime-train']
>>> touched(["docs/gpu.md"])
[]
>>> touched(["noxfile.py"])
['vime-schedule', 'vime-cp', 'vime-metrics', 'vime-train']
"""

import json
import sys
from collections.abc import Iterable

DEPENDENTS = {
    "vime-schedule": ("vime-train",),
    "vime-cp": ("vime-train",),
    "vime-metrics": ("vime-train",),
    "vime-train": (),
}
SHARED = ("noxfile.py", "pyproject.toml", ".github/", ".ci/")


def touched(paths: Iterable[str]) -> list[str]:
    """The packages to test after a change of `paths`, in dependency order."""
    found: set[str] = set()
    for path in paths:
        if path.startswith(SHARED):
            return list(DEPENDENTS)
        for package, dependents in DEPENDENTS.items():
            if path.startswith(f"packages/{package}/"):
                found.update((package, *dependents))
    return [package for package in DEPENDENTS if package in found]


if __name__ == "__main__":
    print(json.dumps(touched(line.strip() for line in sys.stdin)))
