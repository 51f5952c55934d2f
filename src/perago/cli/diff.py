"""``perago diff``: how two states of a repository differ."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_with
from perago.cli.phrasing import COMMIT_LENGTH, size
from perago.cli.refs import repository_option, resolve_commit, resolve_repository

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.model.commit import Commit, Difference
    from perago.settings import Settings


@click.command()
@click.argument("before")
@click.argument("after")
@repository_option
@click.option("--prefix", default="", help="Only keys that start with this.")
@common_with(on=True)
def command(
    *,
    before: str,
    after: str,
    repository: str | None,
    prefix: str,
    speaker: Speaker,
    settings: Settings,
) -> None:
    """Show which objects AFTER has added, changed or removed against BEFORE.

    Both are branches, commit ids, or starts of one.

    \b
    JSON: {"repository", "before", "after", "summary": {added, changed, removed},
      "differences": [{key, kind, bytes_before, bytes_after}]}
    """
    from perago.cli.opening import for_this_command
    from perago.wiring import open_store

    store = for_this_command(open_store(settings))
    name = resolve_repository(store, repository)
    one, other = resolve_commit(store, name, before), resolve_commit(store, name, after)
    differences = list(store.diff(name, one.id, other.id, prefix=prefix))
    kinds = Counter(difference.kind.value for difference in differences)
    document = {
        "repository": name,
        "before": one.id,
        "after": other.id,
        "summary": {kind: kinds[kind] for kind in ("added", "changed", "removed")},
        "differences": [_document(difference) for difference in differences],
    }
    speaker.say(document, lambda: _layout(one, other, differences, kinds))


def _document(difference: Difference) -> dict[str, object]:
    return {
        "key": difference.key,
        "kind": difference.kind.value,
        "bytes_before": difference.before.size if difference.before else None,
        "bytes_after": difference.after.size if difference.after else None,
    }


def _layout(
    one: Commit, other: Commit, differences: list[Difference], kinds: Counter[str]
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.tables import status, table

    summary = Text(
        f"{one.id[:COMMIT_LENGTH]} → {other.id[:COMMIT_LENGTH]}: {kinds['added']} added, "
        f"{kinds['changed']} changed, {kinds['removed']} removed"
    )
    if not differences:
        return summary
    rows = [(status(d.kind.value), _sizes(d), d.key) for d in differences]
    return Group(table(("", "size", "key"), rows, whole=2), summary)


def _sizes(difference: Difference) -> str:
    sides = [size(side.size) for side in (difference.before, difference.after) if side]
    return " → ".join(dict.fromkeys(sides))
