"""Draws demo.svg from a real run of ``perago demo``: python docs/images/make_pictures.py."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import io
import os
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
PICTURE = Path(__file__).parent / "demo.svg"


def demo_output() -> str:
    """What the demo leaves on a terminal, colours included."""
    shutil.rmtree(SCENE, ignore_errors=True)
    SCENE.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PERAGO_")}
    done = subprocess.run(
        [Path(sys.executable).parent / "perago", "demo"],
        cwd=SCENE,
        env=kept | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shutil.rmtree(SCENE)
    return done.stdout


def draw(output: str, picture: Path) -> None:
    """The output as a picture of a terminal."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "dim"), ("perago demo", "bold")))
    console.print(Text.from_ansi(output))
    # A fixed id: otherwise every drawing would differ from the last one throughout.
    svg = console.export_svg(title="perago demo", theme=MONOKAI, unique_id="perago-demo")
    picture.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")


if __name__ == "__main__":
    draw(demo_output(), PICTURE)
