"""What loads what: the library is standard library only and never loads the command line or the drawings."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_by(code: str) -> set[str]:
    """Names of the modules that `code` loads in a fresh interpreter."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint('\\n'.join(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=60, check=True)
    return set(done.stdout.splitlines())


HELP = """
import contextlib, io
from vime_schedule._cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""


@pytest.mark.parametrize("code", ["import vime_schedule", HELP], ids=["import", "help"])
def test_nothing_outside_the_standard_library_is_loaded(code: str) -> None:
    roots = {name.partition(".")[0] for name in loaded_by(code)}
    assert "vime_schedule" in roots
    assert roots - {"vime_schedule"} <= sys.stdlib_module_names | {"__mp_main__"}


def test_importing_the_library_loads_neither_command_line_nor_drawings() -> None:
    loaded = loaded_by("import vime_schedule")
    outer = ("vime_schedule._cli", "vime_schedule._render", "vime_schedule._baselines", "vime_schedule.__main__")
    assert not [name for name in loaded if name.startswith(outer)]
    assert not loaded & {"argparse", "html", "textwrap", "shutil", "asyncio", "multiprocessing", "socket", "ssl"}


def test_help_draws_nothing() -> None:
    assert not [name for name in loaded_by(HELP) if name.endswith(("_svg", "_page"))]
