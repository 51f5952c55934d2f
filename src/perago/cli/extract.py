"""``perago extract``: tasks and pipelines as the JSON a Conductor server takes."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common
from perago.cli.streams import tell

if TYPE_CHECKING:
    from perago.cli.options import Speaker
    from perago.settings import Settings


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write NAME.task.json and NAME.workflow.json files here, instead of printing.",
)
@common
def command(
    *, targets: tuple[str, ...], out: Path | None, speaker: Speaker, settings: Settings
) -> None:
    """Print, or write, Conductor's TaskDef and WorkflowDef JSON.

    Targets are as for 'perago check'. A lease that is too short for its task's publish budget is
    warned of on standard error.

    \b
    JSON, and what is printed without --out: {"tasks": [TaskDef], "workflows": [WorkflowDef]}
    JSON with --out: the same, and "files": [path]
    """
    from rich.text import Text

    from perago.cli.modules import definitions_of, load_declared, resolve_targets

    del settings
    found = definitions_of(*(load_declared(target) for target in resolve_targets(targets)))
    for warning in found.warnings:
        tell(f"warning: {warning}")
    document: dict[str, Any] = {"tasks": list(found.tasks), "workflows": list(found.workflows)}
    if out is None:
        speaker.say(document, lambda: Text(_pretty(document)))
        return
    files = {f"{task['name']}.task.json": task for task in found.tasks}
    files |= {f"{workflow['name']}.workflow.json": workflow for workflow in found.workflows}
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write(out / name, f"{_pretty(content)}\n")
    written = [str(out / name) for name in files]
    speaker.say(document | {"files": written}, lambda: Text("\n".join(written)))


def _pretty(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)


def _write(path: Path, text: str) -> None:
    """Whole or not at all: whoever reads it meanwhile sees the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
