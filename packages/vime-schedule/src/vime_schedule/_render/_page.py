"""One self-contained HTML page: colours, type and charts inside, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from vime_schedule._render._svg import Chart, element
from vime_schedule._render._theme import CHART_STYLE, FONT, colour_variables

PAGE_STYLE = f"""
*{{box-sizing:border-box}}
body{{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 {FONT}}}
main{{max-width:1060px;margin:0 auto;padding:36px 24px 48px}}
h1{{font-size:25px;line-height:1.25;margin:0 0 4px;letter-spacing:-.01em}}
h2{{font-size:16px;margin:0 0 2px}}
p{{margin:0 0 12px;color:var(--muted)}}
code{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:22px 0}}
.tile,section{{background:var(--surface);border:1px solid var(--rule);border-radius:12px}}
.tile{{padding:13px 16px}}
.tile b{{display:block;font-size:24px;font-weight:620;letter-spacing:-.02em;font-variant-numeric:tabular-nums}}
.tile span{{display:block;color:var(--muted);font-size:12.5px;line-height:1.4}}
section{{padding:18px 22px 16px;margin:0 0 16px}}
.pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:16px}}
.chart{{display:block;width:100%;height:auto;overflow:visible}}
.chart rect:hover{{opacity:.75}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:13.5px}}
th,td{{text-align:right;padding:5px 10px;border-bottom:1px solid var(--rule);white-space:nowrap}}
th{{color:var(--muted);font-weight:500}}
th:first-child,td:first-child{{text-align:left;padding-left:0}}
tr:last-child td{{border-bottom:0}}
.scroll{{overflow-x:auto}}
ol{{margin:6px 0 4px;padding-left:22px}}
li{{margin:3px 0}}
footer{{color:var(--muted);font-size:12.5px;padding-top:6px}}
"""


def page(title: str, subtitle: str, content: Iterable[str], footer: str) -> str:
    """Return a whole document."""
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width,initial-scale=1"/>',
        '<meta name="color-scheme" content="light dark"/>',
        element("title", [escape(title)]),
        element("style", [colour_variables() + PAGE_STYLE + CHART_STYLE]),
    ]
    main = [element("h1", [escape(title)]), element("p", [escape(subtitle)]), *content, element("footer", [footer])]
    body = element("html", [element("head", head), element("body", [element("main", main)])], lang="en")
    return f"<!DOCTYPE html>\n{body}\n"


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return a row of figures: name, value, and what to compare it with."""
    cells = [
        element(
            "div",
            [element("span", [escape(name)]), element("b", [escape(value)]), element("span", [escape(note)])],
            class_="tile",
        )
        for name, value, note in entries
    ]
    return element("div", cells, class_="tiles")


def section(heading: str, note: str, chart: Chart) -> str:
    """Return a card with a chart."""
    scroll = element("div", [chart.inline()], class_="scroll")
    return element("section", [element("h2", [escape(heading)]), element("p", [escape(note)]), scroll])


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of figures."""
    head = element("tr", [element("th", [escape(title)]) for title in titles])
    body = [element("tr", [element("td", [escape(cell)]) for cell in row]) for row in rows]
    return element("div", [element("table", [element("thead", [head]), element("tbody", body)])], class_="scroll")
