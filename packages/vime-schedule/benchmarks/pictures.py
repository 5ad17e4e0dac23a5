"""Draw the pictures of the README again.

python packages/vime-schedule/benchmarks/pictures.py     # needs chromium, rich, pillow; writes docs/*.png
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

from vime_schedule import FlopsCost, ParallelLayout, Schedule, TokenBudget, build_dp_schedule, simulate
from vime_schedule._cli._console import COLOURS
from vime_schedule._cli._summary import summary_lines
from vime_schedule._render._plan_page import plan_page
from vime_schedule._render._plan_text import plan_lines
from vime_schedule._render._timeline_svg import timeline_svg
from vime_schedule._render._timeline_text import timeline_lines

DOCS = Path(__file__).parents[1] / "docs"
QWEN3_4B = {
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
}
CHROMIUM = [
    "chromium",
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def demo_plan() -> Schedule:
    """768 chains of thought, two ranks per sequence, an interleaved pipeline."""
    rng = random.Random(0)
    lengths = [200 + min(32768, int(rng.lognormvariate(8.0, 1.0))) for _ in range(768)]
    return build_dp_schedule(
        lengths,
        layout=ParallelLayout(dp=8, cp=2, pp=4, vpp=2),
        batching=TokenBudget(max_tokens_per_gpu=20480, sequence_align=128),
        global_batch_size=768,
        cost=FlopsCost.from_hf_config(QWEN3_4B),
        objective="pipeline",
    )


def photograph(content: str, suffix: str, name: str, width: int, height: int, *, dark: bool = False) -> None:
    """Let a browser draw a page or an SVG into `docs/name`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"page.{suffix}")
        source.write_text(content, encoding="utf-8")
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        where = [f"--user-data-dir={folder}/profile", f"--screenshot={DOCS / name}"]
        command = [*CHROMIUM, *scheme, *where, f"--window-size={width},{height}", source.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    Image.open(DOCS / name).convert("RGB").quantize(128).save(DOCS / name, optimize=True)
    print(f"{name}: {(DOCS / name).stat().st_size // 1024} KiB")


def terminal(schedule: Schedule) -> str:
    """Return what a colour terminal shows for `plan` and `simulate`, as HTML."""
    console = Console(record=True, width=84, file=io.StringIO(), highlight=False)
    timeline = simulate(schedule.steps[0].costs[0], layout=schedule.layout)
    lines = [*summary_lines(schedule, schedule.report(), 80), [], *plan_lines(schedule.steps[0], width=80)]
    lines += [[], *timeline_lines(timeline, width=80)]
    for line in lines:
        console.print(Text.assemble(*((text, COLOURS[style]) for text, style in line)), soft_wrap=True)
    return console.export_svg(title="vime-schedule")


def main() -> int:
    if shutil.which("chromium") is None:
        print("pictures: chromium is missing: apt-get install chromium", file=sys.stderr)
        return 2
    DOCS.mkdir(exist_ok=True)
    schedule = demo_plan()
    slowest = max(schedule.steps[0].costs, key=sum)
    page = plan_page(schedule)
    photograph(page, "html", "plan.png", 1080, 1490)
    photograph(page, "html", "plan-dark.png", 1080, 1490, dark=True)
    photograph(timeline_svg(simulate(slowest, layout=schedule.layout)), "svg", "pipeline.png", 1000, 232)
    photograph(terminal(schedule), "svg", "terminal.png", 1090, 545)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
