"""Write into the README what its commands print now.

    python packages/vime-schedule/benchmarks/readme.py

Runs the python blocks and then the console blocks in an empty folder, as `tests/test_docs.py` does to check them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", flags=re.MULTILINE)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    printed = io.StringIO()

    def refreshed(found: re.Match[str]) -> str:
        if found[1] == "python":
            printed.seek(printed.truncate(0))
            with contextlib.redirect_stdout(printed):
                exec(found[2], names)
            return found[0]
        if found[1] == "text":
            return f"```text\n{printed.getvalue()}```"
        outputs = []
        for command in COMMAND.findall(found[2]):
            done = subprocess.run(["bash", "-c", command], capture_output=True, encoding="utf-8", check=True)
            outputs.append(f"$ {command}\n{done.stdout.rstrip()}\n")
        return "```console\n" + "".join(outputs) + "```"

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = "80"
        README.write_text(BLOCK.sub(refreshed, text), encoding="utf-8")


if __name__ == "__main__":
    main()
