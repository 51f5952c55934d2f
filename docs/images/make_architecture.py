"""Draws architecture.svg: the packages as layers, and the way of one attempt through them.

    python docs/images/make_architecture.py

Every label in a box is a folder or module below src/perago; a test checks that.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH = 960
LAYER = 64
TOP = 46
BOX_HEIGHT = 46

# From the top: who may import whom. A layer imports the layers below it.
LAYERS: list[list[tuple[str, str]]] = [
    [("cli", "commands"), ("testing", "for tests of tasks"), ("demo", "the songs pipeline")],
    [("doctor", "what is misconfigured")],
    [("worker", "processes"), ("operations", "start, import, gc, …"), ("stack", "real servers")],
    [("wiring.py", "settings become adapters")],
    [("flow", "one attempt, in order"), ("adapters", "store, orchestrator, engine")],
    [
        ("declare", "what users write"),
        ("ports", "what flow needs"),
        ("settings.py", "PERAGO_…"),
        ("toolchain", "Java, jars, programs"),
    ],
    [("model", "frozen values"), ("file_lock.py", "one lock"), ("backoff.py", "one backoff")],
    [("errors.py", "one tree")],
]

# The way of one attempt: (folder or module, what happens there), in order.
WAY = [
    ("cli/run.py", "perago run"),
    ("operations/run_start.py", "a run is scheduled"),
    ("worker/supervisor.py", "an attempt is delivered"),
    ("worker/executor.py", "its own process"),
    ("flow/lifecycle.py", "the whole attempt"),
    ("flow/validate.py", "input as declared?"),
    ("adapters/local/engine.py", "files at A"),
    ("declare/task.py", "the body"),
    ("flow/fences.py", "does it still count?"),
    ("flow/stage.py", "commit C"),
    ("flow/publish.py", "the branch moves"),
    ("flow/report.py", "COMPLETED"),
]
COLUMNS = 4
WAY_TOP = TOP + LAYER * len(LAYERS) + 60
WAY_ROW = 84

STYLE = """
    :root { --page: #ffffff; --ink: #1f2733; --dim: #5f6b7a; --line: #8a94a3; --box: #f3f5f9;
            --edge: #c5ccd8; --go: #1d6fd6; }
    @media (prefers-color-scheme: dark) {
      :root { --page: #10141b; --ink: #e6eaf1; --dim: #9aa5b4; --line: #7d8897; --box: #1d2430;
              --edge: #3c4657; --go: #6aa8ff; } }
    text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink);
           text-anchor: middle; }
    .folder { font-family: ui-monospace, "SF Mono", Menlo, monospace; font-size: 14px; }
    .small { font-size: 12px; fill: var(--dim); }
    .lane { font-size: 12px; fill: var(--dim); text-anchor: start; letter-spacing: .04em; }
    .page { fill: var(--page); }
    .box { fill: var(--box); stroke: var(--edge); }
    .path { stroke: var(--go); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
    .down { stroke: var(--line); stroke-width: 1.5; fill: none; marker-end: url(#grey); }
"""


def box(x: float, y: float, width: float, label: str, words: str) -> str:
    middle = x + width / 2
    return (
        f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}"'
        ' rx="8"/>'
        f'<text class="folder" x="{middle:.0f}" y="{y + 20:.0f}">{escape(label)}</text>'
        f'<text class="small" x="{middle:.0f}" y="{y + 37:.0f}">{escape(words)}</text>'
    )


def layers() -> list[str]:
    drawn = ['<text class="lane" x="20" y="28">PACKAGES: EACH IMPORTS ONLY THOSE BELOW IT</text>']
    left, gap = 60, 12
    for row, parts in enumerate(LAYERS):
        y = TOP + row * LAYER
        width = (WIDTH - left - 20 - gap * (len(parts) - 1)) / len(parts)
        for column, (label, words) in enumerate(parts):
            drawn.append(box(left + column * (width + gap), y, width, label, words))
    bottom = TOP + (len(LAYERS) - 1) * LAYER + BOX_HEIGHT
    drawn.append(f'<path class="down" d="M32 {TOP}V{bottom}"/>')
    return drawn


def way() -> list[str]:
    drawn = [
        f'<text class="lane" x="20" y="{WAY_TOP - 18}">ONE ATTEMPT ON ITS WAY THROUGH THEM</text>'
    ]
    gap = 24
    width = (WIDTH - 40 - gap * (COLUMNS - 1)) / COLUMNS
    for number, (label, words) in enumerate(WAY):
        row, column = divmod(number, COLUMNS)
        x, y = 20 + column * (width + gap), WAY_TOP + row * WAY_ROW
        drawn.append(box(x, y, width, label, f"{number + 1}. {words}"))
        if number + 1 == len(WAY):
            break
        if column + 1 < COLUMNS:
            drawn.append(
                f'<path class="path" d="M{x + width:.0f} {y + BOX_HEIGHT / 2:.0f}h{gap - 3}"/>'
            )
        else:
            middle, down = x + width / 2, y + BOX_HEIGHT
            turn = down + (WAY_ROW - BOX_HEIGHT) / 2
            drawn.append(
                f'<path class="path" d="M{middle:.0f} {down:.0f}V{turn:.0f}H{20 + width / 2:.0f}'
                f'V{y + WAY_ROW - 3:.0f}"/>'
            )
    return drawn


def arrowhead(name: str, colour: str) -> str:
    shape = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"'
    return f'    <marker id="{name}" {shape}><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'


def main() -> None:
    height = WAY_TOP + WAY_ROW * (-(-len(WAY) // COLUMNS)) - 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        '     aria-label="The packages as layers, and the files that one attempt passes">',
        f"  <style>{STYLE}  </style>",
        "  <defs>",
        arrowhead("tip", "#3f86e0"),
        arrowhead("grey", "#8a94a3"),
        "  </defs>",
        f'  <rect class="page" width="{WIDTH}" height="{height}" rx="10"/>',
        *(f"  {line}" for line in (*layers(), *way())),
        "</svg>",
    ]
    target = Path(__file__).with_name("architecture.svg")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
