"""The report: one HTML page, light or dark, in a single file that loads nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from .charts import bars, columns, lines_through_places, parts_of_a_whole, week

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

_STYLE = """
:root { color-scheme: light dark; --ink: #182033; --dim: #667085; --accent: #4763e4;
  --second: #f0a35e; --card: #fff; --back: #f3f5fa; --edge: #e4e8f0; --grey: #cfd5e1;
  --1: #4763e4; --2: #d9623b; --3: #0f9d82; --4: #a24bc4; --5: #c08a00;
  --p1: #f0a35e; --p2: #e3c34f; --p3: #8fa3c4; --p4: #d9534f; --mark: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf5; --dim: #98a3b8; --accent: #7c95ff;
  --second: #f2b27a; --card: #171c28; --back: #0e121b; --edge: #252c3b; --grey: #3a4356;
  --1: #7c95ff; --2: #ff8f69; --3: #3ecfb2; --4: #cd86ea; --5: #e6b93d;
  --p1: #f2b27a; --p2: #e5cd6c; --p3: #7f90ad; --p4: #ef7470; --mark: #10141e; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, "Segoe UI", "Liberation Sans", sans-serif; color: var(--ink);
  background: var(--back); margin: 0 auto; max-width: 1180px; padding: 2.2rem 1.2rem 3rem; }
h1 { font-size: 2rem; letter-spacing: -.02em; margin: 0; }
h2 { font-size: 1.02rem; margin: 0; }
p { color: var(--dim); margin: .15rem 0 1rem; }
.tiles { display: grid; gap: 1rem; margin: 1.4rem 0 1rem;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tiles div, section { background: var(--card); border: 1px solid var(--edge); border-radius: 14px; }
.tiles div { padding: .9rem 1.1rem; color: var(--dim); }
.tiles b { display: block; color: var(--ink); font-size: 1.6rem; letter-spacing: -.02em;
  line-height: 1.25; font-variant-numeric: tabular-nums; }
main { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
section { padding: 1.15rem 1.3rem 1.3rem; }
section p { font-size: .9rem; }
section.wide { grid-column: 1 / -1; }
svg { width: 100%; height: auto; display: block; }
text { font-size: 13px; fill: var(--ink); } .small { font-size: 11px; } .dim { fill: var(--dim); }
rect.accent { fill: var(--accent); } rect.second { fill: var(--second); }
.legend { display: flex; gap: 1.2rem; font-size: .85rem; color: var(--dim); margin-bottom: .5rem; }
i { display: inline-block; width: .75em; height: .75em; border-radius: 3px; margin-right: .45em; }
i.accent, span.accent { background: var(--accent); } i.second { background: var(--second); }
.part1 { background: var(--p1); } .part2 { background: var(--p2); }
.part3 { background: var(--p3); } .part4 { background: var(--p4); }
.whole { display: flex; gap: 2px; height: 26px; border-radius: 8px; overflow: hidden; }
.whole span { min-width: 3px; }
.parts { display: flex; flex-wrap: wrap; gap: .4rem 1.8rem; margin-top: .9rem; }
.parts small { color: var(--dim); }
line { stroke-width: 3; stroke-linecap: round; } .mark { fill: var(--mark); font-size: 10.5px; }
line.grey { stroke: var(--grey); stroke-width: 2; } circle.grey { fill: var(--grey); }
circle.grey + .mark { fill: var(--dim); }
""" + "".join(
    f"line.line{n} {{ stroke: var(--{n}); }} circle.line{n} {{ fill: var(--{n}); }}\n"
    for n in range(1, 6)
)


def render_report(
    title: str,
    *,
    fates: Mapping[str, int],
    songs: Sequence[Row],
    places: Sequence[Row],
    months: Sequence[Row],
    hours: Sequence[Row],
) -> str:
    """The whole page. Text is escaped, and nothing is loaded."""
    listens = sum(month["listens"] for month in months)
    sessions = sum(month["sessions"] for month in months)
    tiles = {
        "listening events": f"{sum(fates.values()):,}",
        "listens that count": f"{listens:,}",
        "sessions": f"{sessions:,}",
        "listens in a session": f"{listens / sessions:.1f}" if sessions else "0",
        "hours of music": f"{sum(month['seconds'] for month in months) // 3600:,}",
    }
    sections = (
        _section(
            "What became of the events",
            "Every line that came in has exactly one fate",
            parts_of_a_whole({name.replace("_", " "): count for name, count in fates.items()}),
            wide=True,
        ),
        _section(
            "Month by month",
            "A session ends when a listener is silent for more than 30 minutes",
            columns(
                {row["month"]: (row["listens"], row["sessions"]) for row in months},
                ("listens", "sessions"),
            ),
        ),
        _section(
            "When people listen",
            "Listens by hour of the week",
            week({(row["weekday"], row["hour"]): row["listens"] for row in hours}),
        ),
        _section(
            "Most listened",
            "All months together",
            bars([(row["title"], row["artist"], row["listens"]) for row in songs]),
        ),
        _section(
            "Up and down",
            "Places in each month; a line for as long as a song stays at the top",
            _places_chart(songs, places, months),
        ),
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>"
        f"<p>{escape(_period(months))}</p>"
        f'<div class="tiles">{"".join(_tile(name, value) for name, value in tiles.items())}</div>'
        f"<main>{''.join(sections)}</main></html>\n"
    )


def _places_chart(songs: Sequence[Row], places: Sequence[Row], months: Sequence[Row]) -> str:
    by_song: dict[str, dict[str, int]] = {row["song_id"]: {} for row in songs}
    titles = {row["song_id"]: row["title"] for row in (*songs, *places)}
    for row in places:
        by_song.setdefault(row["song_id"], {})[row["month"]] = row["place"]
    return lines_through_places(
        [row["month"] for row in months],
        [(titles[song], by_month) for song, by_month in by_song.items()],
        top=max((row["place"] for row in places), default=1),
    )


def _period(months: Sequence[Row]) -> str:
    if not months:
        return "Nothing to count"
    return f"Listening from {months[0]['month']} to {months[-1]['month']}, sorted out and counted"


def _tile(name: str, value: str) -> str:
    return f"<div><b>{value}</b>{escape(name)}</div>"


def _section(title: str, remark: str, chart: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}><h2>{escape(title)}</h2><p>{escape(remark)}</p>{chart}</section>"
