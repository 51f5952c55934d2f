"""Draws the pictures of terminals from real runs.

::

    python docs/images/make_pictures.py              demo.svg, what `perago demo` leaves
    python docs/images/make_pictures.py conductor    conductor.svg, a run there while it goes on

The second one needs the servers of `perago stack up` in the current directory.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 104
# The path shows in the picture, so it is short and the same each time.
SCENE = Path("/tmp/songs")  # noqa: S108
HERE = Path(__file__).parent
PERAGO = Path(sys.executable).parent / "perago"

_REDRAWING = re.compile(r"\r(?:\x1b\[2K|\x1b\[1A)+")
_CURSOR = re.compile(r"\x1b\[\?25[lh]")


def demo_output() -> str:
    """What the demo leaves on a terminal, colours included."""
    shutil.rmtree(SCENE, ignore_errors=True)
    SCENE.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PERAGO_")}
    done = subprocess.run(
        [PERAGO, "demo"],
        cwd=SCENE,
        env=kept | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shutil.rmtree(SCENE)
    return done.stdout


def frame_of_a_retry() -> str:
    """The live table of the demo on Conductor at the moment when its retry is running."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [PERAGO, "demo", "--on", "stack"],
        stdin=child,
        stdout=child,
        stderr=child,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": "40"},
    )
    os.close(child)
    written = b""
    with contextlib.suppress(OSError):  # how a terminal without a writer ends
        while data := os.read(parent, 65536):
            written += data
    os.close(parent)
    process.wait()
    frames = _REDRAWING.split(_CURSOR.sub("", written.decode()).replace("\r\n", "\n"))
    return [frame for frame in frames if re.search("retry 1.*running on", frame)][-1]


def draw(command: str, output: str, name: str) -> None:
    """The output as a picture of a terminal."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
    console.print(Text.from_ansi(output))
    # A fixed id: otherwise every drawing would differ from the last one throughout.
    svg = console.export_svg(title=command, theme=MONOKAI, unique_id=f"perago-{name}")
    picture = HERE / f"{name}.svg"
    picture.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["conductor"]:
        draw("perago demo --on stack", frame_of_a_retry(), "conductor")
    else:
        draw("perago demo", demo_output(), "demo")
