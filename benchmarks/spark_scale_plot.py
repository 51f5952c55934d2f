"""Draws what ``spark_scale`` found: seconds on one axis, memory on the other.

    python benchmarks/spark_scale_plot.py RESULTS.json docs/images/spark-scale.svg

Both axes of each half are logarithmic, so that a straight line upwards is linear growth, and a
level one is none.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_scale import Size

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 880, 76, 356
STYLE = """
    :root { --page: #ffffff; --ink: #1f2733; --dim: #5f6b7a; --edge: #dfe4ec;
            --time: #1d6fd6; --driver: #b4540a; --worker: #0f8a72; }
    @media (prefers-color-scheme: dark) {
      :root { --page: #10141b; --ink: #e6eaf1; --dim: #9aa5b4; --edge: #2b3442;
              --time: #6aa8ff; --driver: #f0a35e; --worker: #3ecfb2; } }
    text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink);
           text-anchor: middle; }
    .page { fill: var(--page); } .grid { stroke: var(--edge); }
    .small { font-size: 12px; fill: var(--dim); }
    .left { text-anchor: end; } .right { text-anchor: start; }
    polyline { fill: none; stroke-width: 2.5; }
    polyline.linear { stroke-dasharray: 3 5; stroke-width: 1.5; }
    .time { stroke: var(--time); } .driver { stroke: var(--driver); }
    .worker { stroke: var(--worker); }
    circle { stroke-width: 2.5; fill: var(--page); }
    text.time, text.driver, text.worker { stroke: none; }
    text.time { fill: var(--time); } text.driver { fill: var(--driver); }
    text.worker { fill: var(--worker); }
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high``, by their logarithms, between two places on the page."""

    low: float
    high: float
    start: float
    end: float
    marks: tuple[float, ...] = ()

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float, *, base: int = 10) -> Axis:
        """From a power of the base to a power of the base, with a mark at each."""
        powers = [math.floor(math.log(min(values), base)), math.ceil(math.log(max(values), base))]
        marks = tuple(float(base**power) for power in range(powers[0], powers[1] + 1))
        return cls(marks[0], marks[-1], start, end, marks)

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def plot(sizes: Sequence[Size]) -> str:
    middle, last = sizes[1:]
    linear = [middle.seconds * size.rows / middle.rows for size in sizes]
    rows = Axis(sizes[0].rows / 1.6, last.rows * 1.6, LEFT, RIGHT)
    time = Axis.around([*linear, *(size.seconds for size in sizes)], BOTTOM, TOP)
    peaks = [mib for size in sizes for mib in (size.driver_mib, size.worker_mib)]
    memory = Axis.around(peaks, BOTTOM, TOP, base=4)  # 64 MiB, 256 MiB, 1 GiB, 4 GiB and so on
    places = [rows.place(size.rows) for size in sizes]
    parts = [
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        '<text x="480" y="30">Sorting out and ranking listening events, by their number</text>',
        '<text class="time" x="240" y="56">seconds (dotted: linear)</text>',
        '<text class="driver" x="480" y="56">peak memory of the driver</text>',
        '<text class="worker" x="720" y="56">peak memory of the worker</text>',
        *(
            f'<path class="grid" d="M{LEFT} {time.place(mark):.1f}H{RIGHT}"/>'
            for mark in time.marks
        ),
        *(_mark(LEFT - 12, time.place(mark), f"{mark:,g} s", "left") for mark in time.marks),
        *(_mark(RIGHT + 12, memory.place(mark), _memory(mark), "right") for mark in memory.marks),
        *(
            _mark(x, BOTTOM + 20, f"{_million(size.rows)} events", "")
            for x, size in zip(places, sizes, strict=True)
        ),
        _line("time linear", places, [time.place(seconds) for seconds in linear]),
    ]
    for kind, heights in {
        "driver": [memory.place(size.driver_mib) for size in sizes],
        "worker": [memory.place(size.worker_mib) for size in sizes],
        "time": [time.place(size.seconds) for size in sizes],
    }.items():
        parts += [_line(kind, places, heights), *_dots(kind, places, heights)]
    label = (
        f"From {_million(sizes[0].rows)} to {_million(last.rows)} events: time grows from "
        f"{sizes[0].seconds:.0f} to {last.seconds:.0f} seconds, the driver's memory from "
        f"{_memory(sizes[0].driver_mib)} to {_memory(last.driver_mib)}, the worker's from "
        f"{_memory(sizes[0].worker_mib)} to {_memory(last.worker_mib)}"
    )
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"\n'
        f'     aria-label="{label}">\n  <style>{STYLE}  </style>\n  {body}\n</svg>\n'
    )


def _line(kind: str, places: Sequence[float], heights: Sequence[float]) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, heights, strict=True))
    return f'<polyline class="{kind}" points="{points}"/>'


def _dots(kind: str, places: Sequence[float], heights: Sequence[float]) -> list[str]:
    return [
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        for x, y in zip(places, heights, strict=True)
    ]


def _mark(x: float, y: float, text: str, side: str) -> str:
    return f'<text class="small {side}" x="{x:.1f}" y="{y + 4:.1f}">{text}</text>'


def _memory(mib: float) -> str:
    return f"{mib / 1024:.2g} GiB" if mib >= 1000 else f"{mib:.0f} MiB"


def _million(rows: int) -> str:
    return f"{rows / 1e6:g} million" if rows >= 1_000_000 else f"{rows:,}"


if __name__ == "__main__":
    found = [Size(**size) for size in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(plot(found), encoding="utf-8")
