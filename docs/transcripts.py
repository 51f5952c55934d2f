"""Runs what the documentation shows, and compares it with what the documentation says.

A page is executed from top to bottom in an empty directory of its own:

* a code block whose first line is ``# some/file.ext`` is written to that file;
* in a ``console`` block, a line that starts with ``$ `` is run by the shell, and the lines below it
  are its output;
* ``<!-- after: other.md -->`` executes another page first, in the same directory;
  ``<!-- files of: other.md -->`` only writes its files.

``python docs/transcripts.py`` rewrites every output with what the commands really print.
"""

# ruff: noqa: INP001, T201 - a script, and printing is its output

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
WIDTH = 100
SCENE = Path("/tmp/songs")  # noqa: S108 - it shows in the pages, so it has to be the same each time

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AFTER = re.compile(r"<!-- after: (\S+) -->")
_FILES_OF = re.compile(r"<!-- files of: (\S+) -->")
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)")
_VOLATILE = (
    (re.compile(r"just now|\b\d+(\.\d+)? (s|min|h|d) ago"), "<when>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<when>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min)\b"), "<time>"),
    (re.compile(r"\b\d+\.\d+\b"), "<number>"),
)


@dataclass(frozen=True)
class Command:
    """One shown command, what is printed below it, and where in the page that stands."""

    line: str
    shown: str
    start: int
    end: int


def pages() -> list[Path]:
    """Every page that shows a command with its output."""
    candidates = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in candidates if "\n```console\n" in page.read_text(encoding="utf-8")]


def execute(page: Path, directory: Path) -> Iterator[tuple[Command, str]]:
    """Act the page out in ``directory``: each of its commands with what it really printed."""
    text = page.read_text(encoding="utf-8")
    for other in _FILES_OF.findall(text):
        for block in _blocks(page.parent / other):
            _write_file(block, directory)
    for other in _AFTER.findall(text):
        for _ in execute(page.parent / other, directory):
            pass
    for block in _blocks(page):
        if block[1] == "console":
            for command in _commands(block):
                yield command, _run(command.line, directory)
        else:
            _write_file(block, directory)


def same(shown: str, printed: str, directory: Path) -> bool:
    """Whether two outputs say the same but for ids, times, and where lines are broken."""
    return _essence(shown, SCENE) == _essence(printed, directory)


def _essence(output: str, directory: Path) -> str:
    text = output.replace(str(directory), "<here>")
    for pattern, stand_in in _VOLATILE:
        text = pattern.sub(stand_in, text)
    return re.sub(r"\s+", "", text)


def _blocks(page: Path) -> Iterator[re.Match[str]]:
    return _FENCE.finditer(page.read_text(encoding="utf-8"))


def _write_file(block: re.Match[str], directory: Path) -> None:
    if name := _FILE_NAME.match(block[2]):
        target = directory / name[1]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block[2], encoding="utf-8")


def _commands(block: re.Match[str]) -> Iterator[Command]:
    starts = [match.start() for match in re.finditer(r"^\$ ", block[2], re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(block[2])], strict=True):
        line, _, shown = block[2][start:end].partition("\n")
        offset = block.start(2)
        yield Command(line[2:], shown, offset + start + len(line) + 1, offset + end)


def _run(line: str, directory: Path) -> str:
    """What a terminal shows at the end: without a run's events, which come as JSON here."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERAGO_", "PYTEST_"))}
    environment = kept | {
        "COLUMNS": str(WIDTH),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PERAGO_LOG_FORMAT": "json",
    }
    done = subprocess.run(
        ["bash", "-c", line],  # noqa: S607 - the shell that is on PATH
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    messages = [each for each in done.stderr.splitlines() if not each.startswith("{")]
    lines = [*done.stdout.splitlines(), *messages]
    return "".join(f"{each.rstrip()}\n" for each in lines)


def rewrite(page: Path) -> None:
    """Put the real outputs into the page."""
    shutil.rmtree(SCENE, ignore_errors=True)
    SCENE.mkdir()
    acted = list(execute(page, SCENE))
    text = page.read_text(encoding="utf-8")
    for command, printed in reversed(acted):
        text = text[: command.start] + printed + text[command.end :]
    page.write_text(text, encoding="utf-8")
    shutil.rmtree(SCENE)


if __name__ == "__main__":
    for each in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        print(f"acting out {each.relative_to(ROOT)}")
        rewrite(each)
