"""`import vime_metrics` needs numpy and nothing else, and is quick to load."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires


def loaded_by(statement):
    """Top-level modules that `statement` loads in a fresh interpreter, beyond those of numpy."""
    code = f"import sys, numpy; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    output = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    return {name.partition(".")[0] for name in output.split()}


def test_only_numpy_is_loaded():
    foreign = loaded_by("import vime_metrics, vime_metrics.rl") - set(sys.stdlib_module_names) - {"numpy"}
    assert foreign == {"vime_metrics"}


def test_only_numpy_is_required():
    assert [each for each in requires("vime-metrics") if "extra ==" not in each] == ["numpy>=1.26"]


def test_torch_that_is_missing_prints_its_pip_line():
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError('No module named torch', name='torch')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import vime_metrics.torch\n"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert "vime_metrics.torch needs torch: pip install 'vime-metrics[torch]'" in found.stderr
