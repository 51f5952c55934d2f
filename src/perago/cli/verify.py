"""``perago verify``: every hash in the store, computed again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_with
from perago.cli.phrasing import count, size
from perago.errors import PeragoError, RuntimeConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.ports.store import Store
    from perago.settings import Settings


@click.command()
@common_with(on=True)
def command(*, speaker: Speaker, settings: Settings) -> int:
    """Follow every chain from branch to bytes and re-hash all of it. Exit code 1 for any damage.

    Of the embedded store only: lakeFS looks after its own bytes.

    \b
    JSON: {"clean": bool, "branches", "commits", "trees", "ranges", "objects", "bytes",
      "unreferenced_objects", "missing", "corrupt",
      "findings": [{damage: "missing" | "corrupt", kind, id, detail, affected}]}
    "affected" lists the "repository/branch: key" of every branch that shows a damaged object now.
    """
    from dataclasses import asdict

    from perago.cli.live import transferring
    from perago.cli.opening import for_this_command
    from perago.wiring import open_embedded

    if settings.store == "lakefs":
        raise RuntimeConfigError(
            "there is nothing to verify on lakeFS: it keeps its own bytes, and Perago checks every "
            "object that it fetches from there",
            fix="`perago verify --on embedded` verifies the embedded store of this home",
        )
    store = for_this_command(open_embedded(settings))
    with transferring("verify") as progress:
        report = store.verify(progress)
    affected = _affected(store, {finding.id for finding in report.findings})
    document = asdict(report) | {
        "findings": [asdict(f) | {"affected": affected.get(f.id, [])} for f in report.findings],
        "clean": report.clean,
        "missing": report.missing,
        "corrupt": report.corrupt,
    }
    speaker.say(document, lambda: _layout(document))
    return 0 if report.clean else 1


def _affected(store: Store, damaged: set[str]) -> dict[str, list[str]]:
    """Where each damaged object stands in the branches' heads, as far as they can be read."""
    found: dict[str, list[str]] = {}
    for repository in store.repositories() if damaged else ():
        for branch in store.branches(repository):
            with suppress(PeragoError):
                for entry in store.list_objects(repository, branch.head):
                    if entry.checksum in damaged:
                        place = f"{repository}/{branch.name}: {entry.key}"
                        found.setdefault(entry.checksum, []).append(place)
    return found


def _layout(report: dict[str, object]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.tables import status, table

    counts = ", ".join(
        count(int(str(report[f"{noun}{'es' if noun == 'branch' else 's'}"])), noun)
        for noun in ("branch", "commit", "object")
    )
    looked = Text(f"looked at {counts}, {size(int(str(report['bytes'])))}")
    findings = report["findings"]
    if not isinstance(findings, list) or not findings:
        return Group(looked, Text("nothing missing, nothing corrupt", style="green"))
    rows = [
        (status(f["damage"]), f["kind"], "\n".join([f"{f['id']}: {f['detail']}", *f["affected"]]))
        for f in findings
    ]
    advice = (
        "what is damaged can't be published or exported; restore the store's directory from a "
        "backup, or import the affected files again"
    )
    return Group(
        looked,
        table(("", "what", "which, and what was seen"), rows, whole=2),
        Text(f"{report['missing']} missing, {report['corrupt']} corrupt", style="red"),
        Text(advice),
    )
