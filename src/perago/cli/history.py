"""``perago history`` and ``perago diff``: what was published, and how two commits differ."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import click

from perago.cli.options import close_with_command, common_options
from perago.cli.refs import DEFAULT_BRANCH, repository_option, resolve_commit, resolve_repository
from perago.formatting import COMMIT_LENGTH, RUN_LENGTH, ago, iso, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.commit import Commit, Difference
    from perago.ports.store import Store
    from perago.settings import Settings


_COUNTED = 10_000
"""How many changes of one commit are counted: on a server each thousand is a request."""


@click.command()
@click.argument("ref", required=False)
@repository_option
@click.option(
    "--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch, without REF."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many commits."
)
@common_options(on=True)
def command(
    *,
    ref: str | None,
    repository: str | None,
    branch: str,
    limit: int,
    output: Output,
    settings: Settings,
) -> None:
    """List commits, newest first, from a branch's head or from REF.

    REF is a branch, a commit id, or the start of one. The counts are objects added, changed and
    removed. Of a commit that changed many thousands only the first are counted ("…").

    \b
    JSON: {"repository", "ref", "commits": [{id, parents, created_at, message, task, reference,
      retry, run, execution, added, changed, removed, counted: "all" | "some"}]}
    """
    from perago.wiring import open_store

    store = close_with_command(open_store(settings))
    name = resolve_repository(store, repository)
    start = resolve_commit(store, name, ref or branch)
    commits = [
        commit_document(store, name, commit)
        for commit in store.history(name, start.id, limit=limit)
    ]
    output.show(
        {"repository": name, "ref": ref or branch, "commits": commits},
        lambda: history_layout(commits),
    )


def commit_document(store: Store, repository: str, commit: Commit) -> dict[str, object]:
    """One commit as JSON, with what it changed against its parent."""
    kinds: Counter[str] = Counter()
    if commit.parents:
        changed = store.changed_keys(repository, commit.parents[0], commit.id)
        kinds.update(kind.value for _, kind in islice(changed, _COUNTED))
    retry = commit.metadata.get("perago.retry_count")
    return {
        "id": commit.id,
        "parents": list(commit.parents),
        "created_at": iso(commit.created_at),
        "message": commit.message,
        "task": commit.metadata.get("perago.task_name"),
        "reference": commit.metadata.get("perago.reference_task_name"),
        "retry": int(retry) if retry is not None else None,
        "run": commit.metadata.get("perago.workflow_instance_id"),
        "execution": commit.metadata.get("perago.execution_id"),
        "added": kinds["added"],
        "changed": kinds["changed"],
        "removed": kinds["removed"],
        "counted": "some" if kinds.total() == _COUNTED else "all",
    }


def history_layout(commits: list[dict[str, object]]) -> RenderableType:
    """Commits as a table."""
    from perago.cli.output import table

    headings = ("commit", "run", "changes", "when", "message")
    rows = [
        (
            str(commit["id"])[:COMMIT_LENGTH],
            str(commit["run"] or "")[:RUN_LENGTH],
            f"+{commit['added']} ~{commit['changed']} -{commit['removed']}"
            + (" …" if commit["counted"] == "some" else ""),
            ago(str(commit["created_at"])),
            str(commit["message"]),
        )
        for commit in commits
    ]
    return table(headings, rows, whole=3)


@click.command()
@click.argument("before")
@click.argument("after")
@repository_option
@click.option("--prefix", default="", help="Only keys that start with this.")
@common_options(on=True)
def diff_command(
    *,
    before: str,
    after: str,
    repository: str | None,
    prefix: str,
    output: Output,
    settings: Settings,
) -> None:
    """Show which objects AFTER has added, changed or removed against BEFORE.

    Both are branches, commit ids, or starts of commit ids.

    \b
    JSON: {"repository", "before", "after", "summary": {added, changed, removed},
      "differences": [{key, kind, bytes_before, bytes_after}]}
    """
    from perago.wiring import open_store

    store = close_with_command(open_store(settings))
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
    output.show(document, lambda: _layout(one, other, differences, kinds))


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

    from perago.cli.output import status, table

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
