"""Colours and type of every drawing: one set of names, a light and a dark value for each, no external asset."""

from __future__ import annotations

from html import escape

from vime_schedule._render._svg import Chart, element, number

LIGHT = {
    "page": "#f6f7f9",
    "surface": "#ffffff",
    "ink": "#1a1f27",
    "muted": "#5f6b7a",
    "rule": "#e1e5eb",
    "room": "#dde7f6",
    "even": "#2b66d1",
    "odd": "#5e92e8",
    "padding": "#eaa23c",
    "oversize": "#d9624f",
    "wait": "#bcc4d0",
    "idle": "#eef1f5",
    "mark": "#1a1f27",
    "f0": "#2b66d1",
    "f1": "#5e92e8",
    "f2": "#8fb4f0",
    "f3": "#b9d0f7",
    "b0": "#0f7c66",
    "b1": "#35a38a",
    "b2": "#6fc3af",
    "b3": "#a5dccf",
}
DARK = {
    "page": "#0d1117",
    "surface": "#151b23",
    "ink": "#e6edf3",
    "muted": "#94a1b2",
    "rule": "#2a323d",
    "room": "#20304d",
    "even": "#5a96f5",
    "odd": "#3d74d1",
    "padding": "#e0a040",
    "oversize": "#ef6a61",
    "wait": "#4b5666",
    "idle": "#1d242e",
    "mark": "#e6edf3",
    "f0": "#5a96f5",
    "f1": "#3f77d4",
    "f2": "#315ca6",
    "f3": "#28477d",
    "b0": "#3cc0a2",
    "b1": "#2a9880",
    "b2": "#207561",
    "b3": "#195748",
}
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
CHART_STYLE = f"""
.chart text{{font:12px {FONT};fill:var(--ink)}}
.chart .muted{{fill:var(--muted);font-size:11.5px}}
.chart .end{{fill:var(--ink);font-size:11.5px;font-variant-numeric:tabular-nums}}
.chart .inside{{fill:#fff;font-size:10px;pointer-events:none}}
.chart .rule{{stroke:var(--rule);stroke-width:1}}
.chart .mean{{stroke:var(--mark);stroke-width:1.4;stroke-dasharray:4 3}}
""" + "".join(f".chart .{name}{{fill:var(--{name})}}\n" for name in LIGHT if name not in ("ink", "muted", "rule"))


def colour_variables() -> str:
    """Return the CSS that sets every colour, for both schemes."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in scheme.items()) for scheme in (LIGHT, DARK))
    return f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def standalone(chart: Chart, margin: float = 20) -> str:
    """Return a chart as an SVG file that brings its own colours."""
    width, height = chart.width + 2 * margin, chart.height + 2 * margin
    content = [
        element("title", [escape(chart.label)]),
        element("style", [colour_variables() + CHART_STYLE]),
        element("rect", width=width, height=height, class_="surface"),
        element("g", [chart.body], transform=f"translate({number(margin)} {number(margin)})"),
    ]
    return element(
        "svg",
        content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        class_="chart",
    )
