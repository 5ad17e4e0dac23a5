"""Write SVG elements as text; every text and attribute is escaped here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

LEGIBLE = 0.75  # a chart is never shrunk below this; a narrow page scrolls it instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing in its own coordinates, ready to stand alone or inside a page."""

    width: float
    height: float
    body: str
    label: str

    def inline(self) -> str:
        """Return an `<svg>` that takes its colours from the page around it."""
        return element(
            "svg",
            [element("title", [escape(self.label)]), self.body],
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            role="img",
            class_="chart",
            style=f"min-width:{number(LEGIBLE * self.width)}px",
        )


def element(name: str, children: Iterable[str] = (), /, **attributes: str | float) -> str:
    """Return one element; `class_` writes `class`, and underscores become dashes.

    >>> element("rect", x=1.5, width=2, class_="even")
    '<rect x="1.5" width="2" class="even"/>'
    """
    written = "".join(f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items())
    inner = "".join(children)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def rect(x: float, y: float, width: float, height: float, style: str, tip: str = "") -> str:
    """Return a rectangle with an optional tooltip; nothing if it has no area."""
    if width <= 0 or height <= 0:
        return ""
    title = [element("title", [escape(tip)])] if tip else []
    return element("rect", title, x=x, y=y, width=width, height=height, class_=style)


def label(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    """Return a text with its baseline at y."""
    return element("text", [escape(text)], x=x, y=y, class_=style, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=style)


def number(value: float) -> str:
    """Write a coordinate with two decimals at most.

    >>> number(1.0), number(0.126), number(-0.001)
    ('1', '0.13', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> str:
    """Return a row of colour keys with their meanings."""
    parts = []
    for style, meaning in entries:
        parts += [rect(x, y - 9, 14, 10, style), label(x + 20, y, meaning, "muted")]
        x += 20 + 6.3 * len(meaning) + 22
    return "".join(parts)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else number(value)
