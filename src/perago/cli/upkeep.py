"""``perago gc`` and ``perago verify``: remove leftovers, and check the store's hashes."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from perago.cli.options import close_with_command, common_options
from perago.errors import PeragoError, RuntimeConfigError
from perago.formatting import count, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.ports.store import Store
    from perago.settings import Settings


_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_period(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> float | None:
    """The seconds of ``90s``, ``15m``, ``12h``, ``7d`` or ``2w``; None for None."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a period: write 90s, 15m, 12h, 7d or 2w.")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


@click.command()
@click.option(
    "--keep",
    callback=parse_period,
    metavar="PERIOD",
    default="7d",
    show_default=True,
    help="Keep commits that were created, or last were a branch's head, within this time.",
)
@click.option(
    "--orphans-after",
    callback=parse_period,
    metavar="PERIOD",
    help="Remove the staging branch of an attempt that this machine doesn't know, if it started "
    "longer ago than this. Must exceed the longest attempt. If Conductor knows the task, the "
    "branch is removed an hour after the task ended.  [default: 1h; on lakeFS 7d]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@common_options(on=True)
def gc_command(
    *,
    keep: float,
    orphans_after: float | None,
    dry_run: bool,
    output: Output,
    settings: Settings,
) -> None:
    """Remove what dead attempts left, then commits and bytes that no branch refers to.

    Attempts that run on this machine are never touched. Of attempts elsewhere, Perago only sees the
    staging branch and when it was created: an attempt that takes longer than --orphans-after loses
    its branch, and fails. With --on conductor, Conductor says which attempts have ended, and no
    other is touched. The command waits up to 30 seconds for uploads in progress.

    lakeFS collects its own commits and bytes. There the command cuts this machine's object cache to
    its limit instead. What can't be read or removed is listed, and the rest is still removed.

    \b
    JSON: {"dry_run", "directories": [path], "staging_branches": ["repository/branch"],
      "too_young": ["repository/branch"], "problems": [text], and of the embedded store "commits",
      "trees", "ranges", "objects", "bytes", "temporary_files"; on lakeFS
      "cache": {"removed_bytes", "kept_bytes"}}
    """
    if settings.store == "lakefs":
        _assert_no_period()
        document = _on_lakefs(settings, orphans_after, dry_run=dry_run)
        output.show(document, lambda: _gc_layout(document, _cache_words(document)))
    else:
        document = _embedded(settings, orphans_after, keep=keep, dry_run=dry_run)
        output.show(document, lambda: _gc_layout(document, _store_words(document)))


def _assert_no_period() -> None:
    source = click.get_current_context().get_parameter_source("keep")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--keep is for the embedded store: lakeFS collects its own commits.")


def _embedded(
    settings: Settings, orphans_after: float | None, *, keep: float, dry_run: bool
) -> dict[str, object]:
    from perago.operations.leftover_gc import ORPHAN_SECONDS
    from perago.wiring import open_embedded

    store = close_with_command(open_embedded(settings))
    seconds = ORPHAN_SECONDS if orphans_after is None else orphans_after
    found = _leftovers(store, settings, seconds, dry_run=dry_run)
    return found | asdict(store.gc(keep_seconds=keep, dry_run=dry_run))


def _on_lakefs(
    settings: Settings, orphans_after: float | None, *, dry_run: bool
) -> dict[str, object]:
    from perago.operations.leftover_gc import SHARED_ORPHAN_SECONDS
    from perago.wiring import open_lakefs, open_object_cache

    store = close_with_command(open_lakefs(settings))
    seconds = SHARED_ORPHAN_SECONDS if orphans_after is None else orphans_after
    found = _leftovers(store, settings, seconds, dry_run=dry_run)
    with closing(open_object_cache(settings)) as cache:
        trimmed = cache.trim(dry_run=dry_run)
    return found | {"dry_run": dry_run, "cache": asdict(trimmed)}


def _leftovers(
    store: Store, settings: Settings, orphan_seconds: float, *, dry_run: bool
) -> dict[str, object]:
    """Remove what dead attempts left; what that was, as JSON."""
    from perago.operations.leftover_gc import collect_leftovers
    from perago.ports.orchestrator import SharedRuns
    from perago.wiring import open_runs, system_clock

    runs = close_with_command(open_runs(settings))

    collected = collect_leftovers(
        store,
        settings.attempts,
        now=system_clock().now(),
        dry_run=dry_run,
        orphan_seconds=orphan_seconds,
        end_of_task=runs.task_ended_at if isinstance(runs, SharedRuns) else None,
    )
    return {
        "directories": [str(path) for path in collected.directories],
        "staging_branches": [f"{repository}/{name}" for repository, name in collected.branches],
        "too_young": [f"{repository}/{name}" for repository, name in collected.too_young],
        "problems": list(collected.problems),
    }


def _gc_layout(done: dict[str, object], also: str) -> RenderableType:
    from rich.text import Text

    directories, branches = _listed(done["directories"]), _listed(done["staging_branches"])
    young = _listed(done["too_young"])
    verb = "would remove" if done["dry_run"] else "removed"
    spared = [f"skipped, may belong to another machine: {name}" for name in young]
    summary = (
        f"{verb} {count(len(directories), 'attempt directory')}, "
        f"{count(len(branches), 'staging branch')}, {also}"
    )
    troubles = [f"skipped, {problem}" for problem in _listed(done["problems"])]
    return Text("\n".join([*directories, *branches, *spared, *troubles, summary]))


def _store_words(done: dict[str, object]) -> str:
    number = {name: int(str(done[name])) for name in ("commits", "objects", "bytes")}
    return (
        f"{count(number['commits'], 'commit')}, {count(number['objects'], 'object')}: "
        f"{size(number['bytes'])}"
    )


def _cache_words(done: dict[str, object]) -> str:
    cache = done["cache"]
    assert isinstance(cache, dict)  # noqa: S101 - so made above
    return f"{size(cache['removed_bytes'])} of the object cache, {size(cache['kept_bytes'])} kept"


def _listed(value: object) -> list[str]:
    return value if isinstance(value, list) else []


@click.command()
@common_options(on=True)
def verify_command(*, output: Output, settings: Settings) -> int:
    """Re-hash everything that the store's branches refer to. Exit code 1 for any damage.

    For the embedded store only: lakeFS checks its own bytes.

    \b
    JSON: {"clean": bool, "branches", "commits", "trees", "ranges", "objects", "bytes",
      "unreferenced_objects", "missing", "corrupt",
      "findings": [{damage: "missing" | "corrupt", kind, id, detail, affected}]}
    "affected" lists the "repository/branch: key" of every branch head with a damaged object.
    """
    from dataclasses import asdict

    from perago.cli.local_view import transferring
    from perago.wiring import open_embedded

    if settings.store == "lakefs":
        raise RuntimeConfigError(
            "there is nothing to verify on lakeFS: it checks its own bytes, and Perago checks "
            "every object that it fetches",
            fix="`perago verify --on embedded` verifies the embedded store of this home",
        )
    store = close_with_command(open_embedded(settings))
    with transferring("verify") as progress:
        report = store.verify(progress)
    affected = _affected(store, {finding.id for finding in report.findings})
    document = asdict(report) | {
        "findings": [asdict(f) | {"affected": affected.get(f.id, [])} for f in report.findings],
        "clean": report.clean,
        "missing": report.missing,
        "corrupt": report.corrupt,
    }
    output.show(document, lambda: _verify_layout(document))
    return 0 if report.clean else 1


def _affected(store: Store, damaged: set[str]) -> dict[str, list[str]]:
    """Where each damaged object is in branch heads, as far as they can be read."""
    found: dict[str, list[str]] = {}
    for repository in store.repositories() if damaged else ():
        for branch in store.branches(repository):
            with suppress(PeragoError):
                for entry in store.list_objects(repository, branch.head):
                    if entry.checksum in damaged:
                        shown = f"{repository}/{branch.name}: {entry.key}"
                        found.setdefault(entry.checksum, []).append(shown)
    return found


def _verify_layout(report: dict[str, object]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.output import status, table

    counts = ", ".join(
        count(int(str(report[f"{noun}{'es' if noun == 'branch' else 's'}"])), noun)
        for noun in ("branch", "commit", "object")
    )
    looked = Text(f"checked {counts}, {size(int(str(report['bytes'])))}")
    findings = report["findings"]
    if not isinstance(findings, list) or not findings:
        return Group(looked, Text("nothing missing, nothing corrupt", style="green"))
    rows = [
        (status(f["damage"]), f["kind"], "\n".join([f"{f['id']}: {f['detail']}", *f["affected"]]))
        for f in findings
    ]
    advice = (
        "damaged objects can't be published or exported: restore the store's directory from a "
        "backup, or import the affected files again"
    )
    return Group(
        looked,
        table(("", "what", "id and detail"), rows, whole=2),
        Text(f"{report['missing']} missing, {report['corrupt']} corrupt", style="red"),
        Text(advice),
    )
