"""``perago export``: a commit's files, out of the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_with
from perago.cli.phrasing import COMMIT_LENGTH, count, size
from perago.cli.refs import repository_option, resolve_commit, resolve_repository

if TYPE_CHECKING:
    from perago.cli.options import Speaker
    from perago.settings import Settings


@click.command()
@click.argument("ref")
@click.argument("directory", type=click.Path(path_type=Path))
@repository_option
@click.option("--prefix", default="/", show_default=True, help="Only what is below this.")
@common_with(on=True)
def command(
    *,
    ref: str,
    directory: Path,
    repository: str | None,
    prefix: str,
    speaker: Speaker,
    settings: Settings,
) -> None:
    """Write the files of REF into DIRECTORY, which must be new or empty.

    REF is a branch, a commit id, or a start of one. Every byte is checked against its hash; if
    one is wrong, or a key can't be a file, nothing is left behind.

    \b
    JSON: {"repository", "commit", "directory", "files", "bytes"}
    """
    from rich.text import Text

    from perago.cli.live import transferring
    from perago.cli.opening import for_this_command
    from perago.operations.exporting import export_commit
    from perago.wiring import open_store

    store = for_this_command(open_store(settings))
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
    speaker.say(
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
