"""One self-contained page about a run: figures, curves, lengths, the last plan, and rollouts with their rewards.

Always true: the page loads nothing from anywhere, and every text of the run is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #2e8b57; --bad: #c2454a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
img, svg { max-width: 100%; height: auto; } iframe { width: 100%; height: 620px; border: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { text-align: left; font-weight: 600; } td.text { font-family: ui-monospace, monospace; font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; } .muted { opacity: .7; } .good { color: var(--good); }
.bad { color: var(--bad); } img { background: #fff; } .bar { fill: #2f6fb3; }
text { font-size: 11px; fill: currentColor; }
"""


def run_page(
    title: str,
    rows: Sequence[tuple[str, str]],
    *,
    curves_png: bytes,
    samples: Mapping[str, Any] | None,
    plan_html: str | None,
) -> str:
    """The page as HTML text."""
    parts = [f"<h1>{escape(title)}</h1>", '<p class="muted">Report of a vime-train run</p>', _figures(rows)]
    picture = base64.b64encode(curves_png).decode()
    parts.append(f'<h2>Curves</h2><img alt="curves" src="data:image/png;base64,{picture}">')
    if samples is not None:
        heading = f"Response lengths of iteration {samples['iteration']}"
        parts.append(f"<h2>{heading}</h2>{histogram(samples['response_lengths'])}")
    if plan_html is not None:
        parts.append(f'<h2>The last plan</h2><iframe title="plan" srcdoc="{escape(plan_html)}"></iframe>')
    if samples is not None:
        parts.append(f"<h2>Rollouts of iteration {samples['iteration']}</h2>{_rollouts(samples['rollouts'])}")
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def histogram(lengths: Sequence[int], *, bins: int = 32) -> str:
    """How many responses have which length, as an SVG."""
    if not lengths:
        return "<p>No response.</p>"
    top = max(lengths)
    width = max(1, -(-(top + 1) // bins))
    counts = [0] * (top // width + 1)
    for length in lengths:
        counts[length // width] += 1
    unit, highest = 960 / len(counts), max(counts)
    bars = [
        f'<rect class="bar" x="{place * unit:.1f}" y="{160 - 140 * count / highest:.1f}" width="{unit * 0.9:.1f}" '
        f'height="{140 * count / highest:.1f}"><title>{place * width} to {(place + 1) * width - 1} tokens: {count}'
        "</title></rect>"
        for place, count in enumerate(counts)
    ]
    labels = f'<text x="0" y="176">0</text><text x="960" y="176" text-anchor="end">{top} tokens</text>'
    return f'<svg viewBox="0 0 960 180" role="img" aria-label="response lengths">{"".join(bars)}{labels}</svg>'


def _figures(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in rows)
    return f"<h2>Figures</h2><table>{cells}</table>"


def _rollouts(rollouts: Iterable[Mapping[str, Any]]) -> str:
    head = "<tr><th>reward</th><th>prompt</th><th>answers</th><th>reference</th></tr>"
    return f"<table>{head}{''.join(map(_row, rollouts))}</table>"


def _row(rollout: Mapping[str, Any]) -> str:
    style = "good" if rollout["reward"] > 0 else "bad"
    answers = "\n".join(
        f"{one['text']}  [{one['tokens']} tokens{', cut' if one['status'] == 'truncated' else ''}]"
        for one in rollout["attempts"]
    )
    return (
        f'<tr><td class="{style}">{rollout["reward"]:g}</td><td class="text">{escape(rollout["prompt"])}</td>'
        f'<td class="text">{escape(answers)}</td><td class="text">{escape(rollout["answer"])}</td></tr>'
    )
