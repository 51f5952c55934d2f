"""``perago import`` and ``perago export``: between a directory and a branch or commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perago.cli.options import close_with_command, common_options
from perago.cli.refs import (
    DEFAULT_BRANCH,
    repository_name,
    repository_option,
    resolve_commit,
    resolve_repository,
)
from perago.errors import BranchNotFoundError, RepositoryNotFoundError
from perago.formatting import COMMIT_LENGTH, count, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.commit import Commit
    from perago.ports.store import Store
    from perago.settings import Settings


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repository", "-r", help="The repository.  [default: the directory's name]")
@click.option(
    "--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to commit to."
)
@click.option("--prefix", default="/", show_default=True, help="Where in the repository it goes.")
@click.option("--message", help="The commit's message.  [default: names the directory]")
@common_options(on=True)
def import_command(
    *,
    directory: Path,
    repository: str | None,
    branch: str,
    prefix: str,
    message: str | None,
    output: Output,
    settings: Settings,
) -> None:
    """Make a branch, below a prefix, equal to DIRECTORY, in one commit.

    Files that DIRECTORY doesn't have are removed from the branch. A missing repository or branch is
    created: on lakeFS at the head of the repository's default branch, in the embedded store empty.
    'perago run' works on branches that Perago created, not on other people's. Symlinks and other
    special files are refused by name; empty directories and executable bits are not kept. Refused
    while an active run writes the branch.

    \b
    JSON: {"repository", "branch", "created": "repository" | "branch" | null,
      "commit": id | null if nothing changed, "parent": id, "added", "changed", "removed"}
    """
    from perago.cli.local_view import transferring
    from perago.operations.branches import assert_no_active_run, new_branch_source, own_branches
    from perago.operations.import_export import import_directory
    from perago.wiring import open_runs, open_store

    name = repository or repository_name(directory.resolve().name)
    runs = close_with_command(open_runs(settings))
    assert_no_active_run(runs, name, branch)
    store = close_with_command(open_store(settings))
    created = _missing(store, name, branch)
    with transferring("import") as progress:
        commit = import_directory(
            store,
            repository=name,
            branch=branch,
            directory=directory,
            prefix=prefix,
            message=message,
            progress=progress,
            before_publishing=lambda: assert_no_active_run(runs, name, branch),
            start_at=new_branch_source(store, name) if created == "branch" else None,
            own=own_branches(settings),
        )
    document: dict[str, object] = {
        "repository": name,
        "branch": branch,
        "created": created,
        "commit": commit.id if commit else None,
        "parent": commit.parents[0] if commit else store.head(name, branch).id,
        **_changes(store, name, commit),
    }
    output.show(document, lambda: _layout(document))


def _missing(store: Store, repository: str, branch: str) -> str | None:
    """What has to be created first."""
    try:
        store.head(repository, branch)
    except RepositoryNotFoundError:
        return "repository"
    except BranchNotFoundError:
        return "branch"
    return None


def _changes(store: Store, repository: str, commit: Commit | None) -> dict[str, int]:
    changes = {"added": 0, "changed": 0, "removed": 0}
    if commit is not None:
        for _, kind in store.changed_keys(repository, commit.parents[0], commit.id):
            changes[kind.value] += 1
    return changes


def _layout(done: dict[str, object]) -> RenderableType:
    from rich.text import Text

    where = f"{done['repository']}/{done['branch']}"
    made = f"created the {done['created']}\n" if done["created"] else ""
    if done["commit"] is None:
        return Text(
            f"{made}{where}: nothing changed, it is at {str(done['parent'])[:COMMIT_LENGTH]}"
        )
    counts = f"+{done['added']} ~{done['changed']} -{done['removed']}"
    return Text(f"{made}{where} is at {str(done['commit'])[:COMMIT_LENGTH]} ({counts})")


@click.command()
@click.argument("ref")
@click.argument("directory", type=click.Path(path_type=Path))
@repository_option
@click.option("--prefix", default="/", show_default=True, help="Only what is below this.")
@common_options(on=True)
def export_command(
    *,
    ref: str,
    directory: Path,
    repository: str | None,
    prefix: str,
    output: Output,
    settings: Settings,
) -> None:
    """Write the files of REF into DIRECTORY, which must be new or empty.

    REF is a branch, a commit id, or the start of one. Every byte is checked against its hash. If a
    hash doesn't match, or a key can't be a file name, nothing is written.

    \b
    JSON: {"repository", "commit", "directory", "files", "bytes"}
    """
    from rich.text import Text

    from perago.cli.local_view import transferring
    from perago.operations.import_export import export_commit
    from perago.wiring import open_store

    store = close_with_command(open_store(settings))
    name = resolve_repository(store, repository)
    commit = resolve_commit(store, name, ref)
    with transferring("export") as progress:
        moved = export_commit(
            store,
            repository=name,
            commit=commit,
            directory=directory.absolute(),
            prefix=prefix,
            progress=progress,
        )
    output.show(
        {
            "repository": name,
            "commit": commit.id,
            "directory": str(directory.absolute()),
            "files": moved.objects,
            "bytes": moved.bytes,
        },
        lambda: Text(
            f"{count(moved.objects, 'file')}, {size(moved.bytes)}, of "
            f"{commit.id[:COMMIT_LENGTH]} in {directory}"
        ),
    )
