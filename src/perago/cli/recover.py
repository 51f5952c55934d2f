"""``perago recover``: go on after a run that stopped, from the branch as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common_with, console, place_to_name
from perago.cli.streams import STARTING, meanwhile

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.model.run import RunRecord
    from perago.operations.recovering import Aftermath
    from perago.ports.store import Store
    from perago.settings import Settings

_SHOWN_COMMITS = 20


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only say what the run left behind; start nothing.")
@common_with(starts_slowly=True, on=True)
def command(*, run: str, dry_run: bool, speaker: Speaker, settings: Settings) -> int:
    """Start a run as RUN was started, but from its branch's present head, and watch it to its end.

    RUN is the id of a run, on Conductor of a workflow, or a start of it that no other one has. It
    is for a run that stopped because its branch was not where it expected it: what is on the branch
    now, whoever wrote it, is what the new run goes on from. Before it starts it says which commits
    those are. Refused while RUN, or another run on that branch, is active.

    \b
    JSON: {"recovered": id, "status", "reason", "branch": "repository/branch", "accepted": id,
      "head": id, "leads_back": bool, "since": [the newest commits on top of the accepted one, as
      of `history`], "run": the new one as of `run`; null with --dry-run}; of a run without a
      workspace all but its own are null
    """
    with meanwhile(STARTING):
        from perago.cli.opening import for_this_command
        from perago.cli.run_end import as_json, exit_code, summary
        from perago.cli.watched import watch_to_its_end
        from perago.operations.own_branches import own_branches
        from perago.operations.recovering import aftermath, assert_recoverable, recover
        from perago.wiring import open_runs, open_store

        runs = for_this_command(open_runs(settings))
        store = for_this_command(open_store(settings))
        stopped = runs.find(run)
        assert_recoverable(runs, stopped)
        left = aftermath(store, stopped)
        document = _document(store, stopped, left)
    if dry_run:
        speaker.say(document, lambda: _layout(document))
        return 0
    if not speaker.as_json:
        console(stderr=True).print(_layout(document))

    started = recover(runs, store, stopped, own=own_branches(settings))
    record = watch_to_its_end(settings, runs, started)
    speaker.say(document | {"run": as_json(record)}, lambda: summary(record, place_to_name()))
    return exit_code(record)


def _document(store: Store, run: RunRecord, left: Aftermath | None) -> dict[str, Any]:
    from perago.cli.history import commit_document

    said = {"recovered": run.id, "status": run.status.value, "reason": run.reason, "run": None}
    if left is None:
        return said | dict.fromkeys(("branch", "accepted", "head", "leads_back", "since"))
    repository = left.workspace.repository
    return said | {
        "branch": f"{repository}/{left.workspace.branch}",
        "accepted": left.accepted,
        "head": left.head.id,
        "leads_back": left.leads_back,
        "since": [commit_document(store, repository, c) for c in left.since[:_SHOWN_COMMITS]],
    }


def _layout(left: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.history import history_layout

    lines = [Text(f"run {left['recovered']} is {left['status']}: {left['reason'] or 'no reason'}")]
    if left["branch"] is None:
        return Group(*lines)
    lines.append(Text(f"its last accepted commit is {left['accepted']}"))
    if left["head"] == left["accepted"]:
        return Group(*lines, Text(f"{left['branch']} is there still: the new run goes on from it"))
    lines.append(Text(f"{left['branch']} is at {left['head']}: the new run goes on from there"))
    if not left["leads_back"]:
        elsewhere = "the accepted commit isn't in the branch's history: it was moved, or made anew"
        return Group(*lines, Text(elsewhere, style="yellow"))
    return Group(*lines, Text("written since, newest first:"), history_layout(left["since"]))
