"""``perago register``: have Conductor know tasks and pipelines as the code declares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common_with
from perago.cli.streams import tell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.declare.pipeline import Pipeline
    from perago.operations.registering import Registration
    from perago.settings import Settings


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option("--dry-run", is_flag=True, help="Only compare; exit code 1 if anything differs.")
@common_with(on=True, least="conductor")
def command(
    *, targets: tuple[str, ...], dry_run: bool, speaker: Speaker, settings: Settings
) -> int:
    """Compare TaskDefs and WorkflowDefs with what Conductor has, and push what differs.

    Targets are as for 'perago check'. What Conductor fills in by itself is no difference; a field
    that somebody set there is one, and is overwritten. Workflows that run already go on as they
    began. A lease that is too short for its task's publish budget is warned of.

    \b
    JSON: {"ok": bool, "dry_run": bool, "definitions": [{kind: "task" | "workflow", name,
      state: "missing" | "same" | "differs", differences: [{field, declared, registered}],
      pushed: bool}], "warnings": [text]}: "ok" if all are registered now as they are declared
    """
    from perago.cli.modules import definitions_of, load_declared, resolve_targets
    from perago.cli.opening import for_this_command
    from perago.operations.registering import Standing, compare, register
    from perago.wiring import open_definitions

    ours = definitions_of(*(load_declared(target) for target in resolve_targets(targets)))
    server = for_this_command(open_definitions(settings))
    found = (compare if dry_run else register)(server, ours.tasks, ours.workflows)
    ok = all(one.pushed or one.standing is Standing.SAME for one in found)
    document = {
        "ok": ok,
        "dry_run": dry_run,
        "definitions": [_document(one) for one in found],
        "warnings": list(ours.warnings),
    }
    if not speaker.as_json:
        for warning in ours.warnings:
            tell(f"warning: {warning}")
    speaker.say(document, lambda: _layout(found, dry_run=dry_run))
    return 0 if ok else 1


def see_to_definitions(settings: Settings, pipeline: Pipeline, *, push: bool) -> None:
    """Have Conductor know a pipeline and its tasks as they are declared.

    Without ``push`` it has to know them already: raises DefinitionDiffersError, naming the command
    that tells it.
    """
    from perago.cli.modules import Declared, definitions_of
    from perago.cli.opening import for_this_command
    from perago.errors import DefinitionDiffersError
    from perago.operations.registering import differences, register
    from perago.wiring import open_definitions

    ours = definitions_of(Declared(pipeline.target, tuple(pipeline.tasks), (pipeline,)))
    server = for_this_command(open_definitions(settings))
    if push:
        register(server, ours.tasks, ours.workflows)
    elif problems := differences(server, ours.tasks, ours.workflows):
        raise DefinitionDiffersError(
            "; ".join(problem.message for problem in problems),
            fix=f"`perago register {pipeline.target}`, or start it with --register",
        )


def _document(one: Registration) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "state": one.standing.value,
        "differences": [
            {"field": d.field, "declared": d.ours, "registered": d.theirs} for d in one.differences
        ],
        "pushed": one.pushed,
    }


def _layout(found: list[Registration], *, dry_run: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.phrasing import count
    from perago.cli.tables import table
    from perago.operations.registering import Standing

    rows = []
    for one in found:
        same = one.standing is Standing.SAME
        state = Text(one.standing, style="green" if same else "yellow")
        state.append("".join(f"\n{difference}" for difference in one.differences), style="dim")
        done = "registered" if one.pushed else "" if same else "not registered"
        rows.append((one.name, one.kind, done, state))
    differing = sum(one.standing is not Standing.SAME for one in found)
    did = "to register" if dry_run else "registered"
    return Group(
        table(("name", "kind", "done", "it was"), rows, whole=3),
        Text(f"{count(len(found), 'definition')}, {differing} {did}"),
    )
