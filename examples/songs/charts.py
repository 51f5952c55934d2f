"""Charts as SVG text. The page's style sheet has the colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 560
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_COLOURED = 5  # lines of a chart of places; the others stay grey


def bars(values: Sequence[tuple[str, str, int]]) -> str:
    """Horizontal bars, each with a name, a remark below it, and a value."""
    row, left, width = 36, 160, 330
    most = max((value for _, _, value in values), default=0) or 1
    drawn = "".join(
        f'<g transform="translate(0 {number * row})">'
        f'<text x="0" y="14">{escape(name)}</text>'
        f'<text x="0" y="28" class="small dim">{escape(remark)}</text>'
        f'<rect class="accent" x="{left}" y="5" width="{width * value / most:.1f}" height="20" '
        f'rx="4"><title>{escape(name)}: {value:,}</title></rect>'
        f'<text x="{left + width * value / most + 8:.1f}" y="20" class="dim">{value:,}</text></g>'
        for number, (name, remark, value) in enumerate(values)
    )
    return _svg(_WIDTH, max(len(values), 1) * row, drawn, "Bars")


def columns(values: Mapping[str, tuple[int, int]], names: tuple[str, str]) -> str:
    """Two columns for every label, the second one narrower."""
    height, bottom = 190, 26
    most = max((first for first, _ in values.values()), default=0) or 1
    step = _WIDTH / max(len(values), 1)
    drawn = []
    for number, (label, pair) in enumerate(values.items()):
        middle = (number + 0.5) * step
        for index, (value, wide) in enumerate(zip(pair, (0.46, 0.18), strict=True)):
            tall = (height - 24) * value / most
            x = middle + (-0.4 if index == 0 else 0.18) * step
            drawn.append(
                f'<rect class="{"accent" if index == 0 else "second"}" x="{x:.1f}" '
                f'y="{height - tall:.1f}" width="{wide * step:.1f}" height="{tall:.1f}" rx="3">'
                f"<title>{escape(label)}: {value:,} {names[index]}</title></rect>"
                f'<text class="small dim" text-anchor="middle" x="{x + wide * step / 2:.1f}" '
                f'y="{height - tall - 6:.1f}">{_short(value)}</text>'
            )
        drawn.append(
            f'<text text-anchor="middle" x="{middle:.1f}" y="{height + 19}">{escape(label)}</text>'
        )
    legend = _legend([("accent", names[0]), ("second", names[1])])
    return legend + _svg(_WIDTH, height + bottom, "".join(drawn), "Columns by month")


def parts_of_a_whole(parts: Mapping[str, int]) -> str:
    """One bar in several parts, with a legend below."""
    whole = sum(parts.values()) or 1
    kinds = ["accent", "part1", "part2", "part3", "part4"]
    segments = "".join(
        f'<span class="{kind}" style="flex-grow:{count}" title="{escape(name)}: {count:,}"></span>'
        for kind, (name, count) in zip(kinds, parts.items(), strict=False)
        if count
    )
    rows = "".join(
        f'<div><i class="{kind}"></i><b>{count:,}</b> {escape(name)} '
        f"<small>{count / whole:.1%}</small></div>"
        for kind, (name, count) in zip(kinds, parts.items(), strict=False)
    )
    return f'<div class="whole">{segments}</div><div class="parts">{rows}</div>'


def week(listens: Mapping[tuple[int, int], int]) -> str:
    """A square for every hour of the week; darker is busier."""
    cell, tall, left, top = 21.5, 28, 44, 18
    most = max(listens.values(), default=0) or 1
    hours = "".join(
        f'<text class="small dim" text-anchor="middle" x="{left + (hour + 0.5) * cell}" y="11">'
        f"{hour:02d}</text>"
        for hour in range(0, 24, 3)
    )
    days = "".join(
        f'<text class="small" x="0" y="{top + day * tall + 18}">{name}</text>'
        for day, name in enumerate(_WEEKDAYS)
    )
    squares = "".join(
        f'<rect class="accent" x="{left + hour * cell}" y="{top + day * tall}" width="{cell - 3}" '
        f'height="{tall - 3}" rx="4" fill-opacity="{0.06 + 0.94 * count / most:.3f}">'
        f"<title>{_WEEKDAYS[day]} {hour:02d}:00: {count:,}</title></rect>"
        for day in range(7)
        for hour in range(24)
        for count in [listens.get((day, hour), 0)]
    )
    return _svg(_WIDTH, top + 7 * tall, hours + days + squares, "Listens by hour")


def lines_through_places(
    months: Sequence[str], songs: Sequence[tuple[str, Mapping[str, int]]], *, top: int
) -> str:
    """A line for each song through its place in every month, with gaps below the top."""
    row, left, right, head = 33, 26, 140, 24
    step = (_WIDTH - left - right) / max(len(months) - 1, 1)

    def spot(month: int, place: int) -> tuple[float, float]:
        return left + month * step, head + (place - 0.5) * row

    drawn = [
        f'<text class="small dim" text-anchor="middle" x="{spot(n, 1)[0]:.1f}" y="12">'
        f"{escape(month)}</text>"
        for n, month in enumerate(months)
    ]
    last = len(months) - 1
    # The coloured ones are drawn last, on top of the grey.
    for number, (title, by_month) in reversed(list(enumerate(songs))):
        kind = f"line{number + 1}" if number < _COLOURED else "grey"
        at = {n: spot(n, by_month[m]) for n, m in enumerate(months) if m in by_month}
        drawn += [
            f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{at[n + 1][0]:.1f}" '
            f'y2="{at[n + 1][1]:.1f}"/>'
            for n, (x, y) in at.items()
            if n + 1 in at
        ]
        drawn += [
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="10">'
            f"<title>{escape(title)}</title></circle>"
            f'<text class="mark" text-anchor="middle" x="{x:.1f}" y="{y + 4:.1f}">'
            f"{by_month[months[n]]}</text>"
            for n, (x, y) in at.items()
        ]
        if last in at:
            x, y = at[last]
            drawn.append(f'<text x="{x + 18:.1f}" y="{y + 4:.1f}">{escape(title)}</text>')
    return _svg(_WIDTH, head + top * row, "".join(drawn), "Places by month")


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    marks = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in entries)
    return f'<div class="legend">{marks}</div>'


def _short(value: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if value >= size:
            scaled = value / (1_000_000 if unit == "M" else 1_000)
            return f"{scaled:.3g}{unit}"
    return f"{value:,}"


def _svg(width: float, height: float, content: str, label: str) -> str:
    size = f"0 0 {width} {height}"
    return f'<svg viewBox="{size}" role="img" aria-label="{escape(label)}">{content}</svg>'
