"""One HTML page with bar charts, in a single file that needs nothing from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROW = 26
_LABEL = 170
_BAR = 420

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #667085; --bar: #3b6ef5; --card: #fff;
        --back: #f4f6fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf4; --dim: #98a2b3; --bar: #6d94ff; --card: #1a202c; --back: #10141c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       margin: 0 auto; max-width: 760px; padding: 2.5rem 1rem; }
h1 { font-size: 1.9rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
p { color: var(--dim); margin: .2rem 0 1.6rem; }
section { background: var(--card); border-radius: 12px; padding: 1.2rem 1.4rem; margin: 1rem 0;
          box-shadow: 0 1px 3px #0002; }
svg { width: 100%; height: auto; } text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.value { fill: var(--dim); } rect { fill: var(--bar); }
"""


@dataclass(frozen=True, slots=True)
class Bars:
    """A titled bar chart."""

    title: str
    values: Mapping[str, int]

    def as_svg(self) -> str:
        most = max(self.values.values(), default=0) or 1
        rows = "".join(
            self._row(number, label, value, _BAR * value / most)
            for number, (label, value) in enumerate(self.values.items())
        )
        height = max(len(self.values), 1) * _ROW
        size = f"0 0 {_LABEL + _BAR + 80} {height}"
        return f'<svg viewBox="{size}" role="img" aria-label="{escape(self.title)}">{rows}</svg>'

    @staticmethod
    def _row(number: int, label: str, value: int, width: float) -> str:
        top = number * _ROW
        return (
            f'<text x="{_LABEL - 10}" y="{top + 17}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{_LABEL}" y="{top + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="3"/>'
            f'<text class="value" x="{_LABEL + width + 8:.1f}" y="{top + 17}">{value:,}</text>'
        )


def render_page(title: str, summary: str, charts: Sequence[Bars]) -> str:
    """The whole page; text is escaped, nothing is loaded from outside."""
    sections = "".join(f"<section><h2>{escape(c.title)}</h2>{c.as_svg()}</section>" for c in charts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(summary)}</p>{sections}</html>\n"
    )
