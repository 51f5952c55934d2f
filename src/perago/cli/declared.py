"""``perago extract`` and ``perago register``: Conductor definitions of what modules declare.

Also which modules a command works on if none is named.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import close_with_command, common, common_options
from perago.cli.output import echo_err
from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.declare.pipeline import Pipeline
    from perago.operations.registration import Registration
    from perago.settings import Settings


def resolve_targets(given: tuple[str, ...]) -> tuple[str, ...]:
    """What was given, else ``modules`` of ``[tool.perago]`` in ./pyproject.toml.

    Raises RuntimeConfigError if there is neither.
    """
    if named := given or listed_modules():
        return named
    raise RuntimeConfigError(
        "no module was named, and ./pyproject.toml lists none",
        fix='name one, or write [tool.perago] modules = ["package.tasks"] in pyproject.toml',
    )


def listed_modules() -> tuple[str, ...]:
    """The modules that ./pyproject.toml lists; empty without such a list."""
    project = Path("pyproject.toml")
    try:
        settings = tomllib.loads(project.read_text(encoding="utf-8")) if project.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise RuntimeConfigError(f"{project}: {error}", fix="correct that line") from None
    modules = settings.get("tool", {}).get("perago", {}).get("modules")
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        return ()
    return tuple(modules)


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write NAME.task.json and NAME.workflow.json files here, instead of printing.",
)
@common
def extract_command(
    *, targets: tuple[str, ...], out: Path | None, output: Output, settings: Settings
) -> None:
    """Print, or write, Conductor's TaskDef and WorkflowDef JSON.

    Targets are as for 'perago check'. A lease that is too short for its task's publish budget gives
    a warning on standard error.

    \b
    JSON, and what is printed without --out: {"tasks": [TaskDef], "workflows": [WorkflowDef]}
    JSON with --out: the same, and "files": [path]
    """
    from rich.text import Text

    from perago.operations.declared import definitions_of, load_declared

    del settings
    found = definitions_of(*(load_declared(target) for target in resolve_targets(targets)))
    for warning in found.warnings:
        echo_err(f"warning: {warning}")
    document: dict[str, Any] = {"tasks": list(found.tasks), "workflows": list(found.workflows)}
    if out is None:
        output.show(document, lambda: Text(_pretty(document)))
        return
    files = {f"{task['name']}.task.json": task for task in found.tasks}
    files |= {f"{workflow['name']}.workflow.json": workflow for workflow in found.workflows}
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write(out / name, f"{_pretty(content)}\n")
    written = [str(out / name) for name in files]
    output.show(document | {"files": written}, lambda: Text("\n".join(written)))


def _pretty(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)


def _write(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option("--dry-run", is_flag=True, help="Only compare; exit code 1 if anything differs.")
@common_options(on=True, minimum="conductor")
def register_command(
    *, targets: tuple[str, ...], dry_run: bool, output: Output, settings: Settings
) -> int:
    """Compare TaskDefs and WorkflowDefs with Conductor's, and push those that differ.

    Targets are as for 'perago check'. Fields that Conductor fills in by itself don't count; a field
    that a person set there does, and is overwritten. Workflows that are already running continue as
    they were started. A lease that is too short for its task's publish budget gives a warning.

    \b
    JSON: {"ok": bool, "dry_run": bool, "definitions": [{kind: "task" | "workflow", name,
      state: "missing" | "same" | "differs", differences: [{field, declared, registered}],
      pushed: bool}], "warnings": [text]}: "ok" if Conductor now has all of them as declared
    """
    from perago.operations.declared import definitions_of, load_declared
    from perago.operations.registration import DefinitionState, compare, register
    from perago.wiring import open_definitions

    ours = definitions_of(*(load_declared(target) for target in resolve_targets(targets)))
    server = close_with_command(open_definitions(settings))
    found = (compare if dry_run else register)(server, ours.tasks, ours.workflows)
    ok = all(one.pushed or one.state is DefinitionState.SAME for one in found)
    document = {
        "ok": ok,
        "dry_run": dry_run,
        "definitions": [_document(one) for one in found],
        "warnings": list(ours.warnings),
    }
    if not output.as_json:
        for warning in ours.warnings:
            echo_err(f"warning: {warning}")
    output.show(document, lambda: _layout(found, dry_run=dry_run))
    return 0 if ok else 1


def ensure_registered(settings: Settings, pipeline: Pipeline, *, push: bool) -> None:
    """Make sure that Conductor has a pipeline and its tasks as they are declared.

    Raises DefinitionDiffersError, naming the command that registers them, if it doesn't; with
    ``push``, registers them instead.
    """
    from perago.errors import DefinitionDiffersError
    from perago.operations.declared import declared_by, definitions_of
    from perago.operations.registration import differences, register
    from perago.wiring import open_definitions

    ours = definitions_of(declared_by(pipeline))
    server = close_with_command(open_definitions(settings))
    if push:
        register(server, ours.tasks, ours.workflows)
    elif problems := differences(server, ours.tasks, ours.workflows):
        raise DefinitionDiffersError(
            "; ".join(problem.message for problem in problems),
            fix=f"`perago register {pipeline.target}`, or add --register",
        )


def _document(one: Registration) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "state": one.state.value,
        "differences": [
            {"field": d.field, "declared": d.ours, "registered": d.theirs} for d in one.differences
        ],
        "pushed": one.pushed,
    }


def _layout(found: list[Registration], *, dry_run: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.output import table
    from perago.formatting import count
    from perago.operations.registration import DefinitionState

    rows = []
    for one in found:
        same = one.state is DefinitionState.SAME
        state = Text(one.state, style="green" if same else "yellow")
        state.append("".join(f"\n{difference}" for difference in one.differences), style="dim")
        done = "registered" if one.pushed else "" if same else "not registered"
        rows.append((one.name, one.kind, done, state))
    differing = sum(one.state is not DefinitionState.SAME for one in found)
    did = "to register" if dry_run else "registered"
    return Group(
        table(("name", "kind", "now", "before"), rows, whole=3),
        Text(f"{count(len(found), 'definition')}, {differing} {did}"),
    )
