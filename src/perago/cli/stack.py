"""``perago stack``: real servers on this machine, for development and tests."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common
from perago.cli.output import echo_err, is_terminal, until_reader_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.settings import Settings
    from perago.toolchain.cache import OnLine

Named = tuple[str, ...] | None

_FOLLOW_SECONDS = 0.2


def _known(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> Named:
    """The named servers; None if none is named."""
    from perago.stack import stack

    known = stack.names()
    for name in names:
        if name not in known:
            raise click.UsageError(f"No server is called {name!r}: there are {', '.join(known)}.")
    return names or None


_servers = click.argument("servers", metavar="[SERVER]...", nargs=-1, callback=_known)


@click.group()
def command() -> None:
    """Run real servers on this machine, without Docker: lakeFS, Conductor and Spark.

    SERVER is `lakefs`, `conductor`, `spark` (a master and two workers) or `spark-connect`. Without
    it, commands work on lakeFS, Conductor and any other server that was started. Their programs are
    fetched once, into $PERAGO_TOOLS or the user's cache. Their data is in $PERAGO_STACK or
    .perago/stack, with the settings file by which other commands find a running stack.
    """


@command.command(short_help="Fetch what is missing, start the servers, wait until they answer.")
@_servers
@common
def up(*, servers: Named, output: Output, settings: Settings) -> None:
    """Fetch what is missing, start the servers, wait until they answer.

    Run it again to restart servers that died. The first time on a machine takes some minutes:
    lakeFS is built from source, and Conductor is downloaded. Tasks use the stack's Spark only if
    SPARK_MASTER or SPARK_REMOTE names it; `up` shows what to set.

    \b
    JSON: as of `status`, and "started": [name]
    """
    from perago.stack import stack

    directory = _directory(settings)
    with _progress() as show:
        started = stack.up(directory, show, only=servers)
    document = {**_status_document(directory, servers), "started": started}
    output.show(document, lambda: _up_layout(document))


@command.command(short_help="Stop the servers; their data stays.")
@click.option("--delete-data", is_flag=True, help="Delete data, logs and credentials, too.")
@common
def down(*, delete_data: bool, output: Output, settings: Settings) -> None:
    """Stop the servers. Their data stays for the next `up`, except with --delete-data.

    \b
    JSON: {"stopped": [name], "deleted_data": bool}
    """
    from perago.stack import stack

    with _progress() as show:
        stopped = stack.down(_directory(settings), show, delete_data=delete_data)
    document = {"stopped": stopped, "deleted_data": delete_data}
    output.show(document, lambda: _down_layout(stopped, delete_data=delete_data))


@command.command(short_help="Show which servers run and answer.")
@_servers
@common
def status(*, servers: Named, output: Output, settings: Settings) -> int:
    """Show which servers run and answer. Exit code 1 unless all of them do.

    \b
    JSON: {"ok": bool, "settings_file": path, "servers": [{name, version,
      state: "running" | "not answering" | "stopped", pid, endpoint, use: "VARIABLE=value" | null,
      disk_bytes, directory, log}]}
    """
    document = _status_document(_directory(settings), servers)
    output.show(document, lambda: _status_layout(document))
    return 0 if document["ok"] else 1


@command.command(short_help="Show the servers' logs.")
@_servers
@click.option("-f", "--follow", is_flag=True, help="Show new lines until Ctrl-C.")
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="How many lines to show of each log, from the end.",
)
@common
def logs(
    *,
    servers: Named,
    follow: bool,
    lines: int,
    output: Output,
    settings: Settings,
) -> None:
    """Show the end of the servers' logs.

    \b
    JSON: {"logs": [{name, path, bytes}]}: programs read the files
    """
    from perago.stack import stack
    from perago.stack.server import last_lines

    shown = stack.status(_directory(settings), only=servers)
    found = [(one.name, one.log) for one in shown if one.log.exists()]
    if output.as_json:
        listed = [{"name": n, "path": str(p), "bytes": p.stat().st_size} for n, p in found]
        output.show({"logs": listed}, lambda: "")
        return
    if not found:
        echo_err("there are no logs: `perago stack up` starts the servers")
    with until_reader_leaves():
        ends = {path: path.stat().st_size for _, path in found}
        heading = _Heading(found)
        for _, path in found:
            if lines and (end := last_lines(path, lines)):
                heading.before(path)
                click.echo(end)
        if follow and found:
            _follow(ends, heading)


@command.command(short_help="Only fetch what is missing; start nothing.")
@_servers
@click.option("--quiet", is_flag=True, help="Print nothing if nothing is missing.")
@common
def prepare(*, servers: Named, quiet: bool, output: Output, settings: Settings) -> None:
    """Fetch what the servers need, and start nothing. Without SERVER, for all servers.

    \b
    JSON: {"got": [name], "tools": path}
    """
    from rich.text import Text

    from perago.stack import stack
    from perago.toolchain.cache import tools_directory

    del settings
    with _progress() as show:
        got = stack.prepare(show, only=servers)
    if got or not quiet or output.as_json:
        line = f"fetched {', '.join(got)}" if got else "nothing is missing"
        document = {"got": got, "tools": str(tools_directory())}
        output.show(document, lambda: Text(f"{line}; {tools_directory()}"))


@contextmanager
def _progress() -> Iterator[OnLine]:
    """On a terminal one line that changes, with the time it takes; else a line for each step."""
    if not is_terminal(sys.stderr):
        yield echo_err
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from perago.cli.output import console

    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    )
    with shown:
        line = shown.add_task("looking", total=None)
        yield lambda words: shown.update(line, description=words)


def _directory(settings: Settings) -> Path:
    return settings.stack.absolute()


def _status_document(directory: Path, only: Named) -> dict[str, object]:
    from perago.settings import STACK_SETTINGS
    from perago.stack import stack

    servers = stack.status(directory, only=only)
    return {
        "ok": all(one.state == "running" for one in servers),
        "settings_file": str(directory / STACK_SETTINGS),
        "servers": [
            {**asdict(one), "directory": str(one.directory), "log": str(one.log)} for one in servers
        ],
    }


def _up_layout(document: dict[str, object]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    done = "started" if document["started"] else "all are running already"
    to_use = [f"to use it: export {one['use']}" for one in _listed(document) if one["use"]]
    lines = [f"{done}; settings: {document['settings_file']}", *to_use]
    return Group(_status_layout(document), *map(Text, lines))


def _status_layout(document: dict[str, object]) -> RenderableType:
    from perago.cli.output import status as coloured
    from perago.cli.output import table
    from perago.formatting import size

    rows = [
        (
            one["name"],
            coloured(one["state"]),
            str(one["pid"] or ""),
            one["version"],
            one["endpoint"] or "",
            size(one["disk_bytes"]),
        )
        for one in _listed(document)
    ]
    return table(("server", "status", "pid", "version", "endpoint", "on disk"), rows, whole=5)


def _listed(document: dict[str, object]) -> list[dict[str, Any]]:
    servers = document["servers"]
    return servers if isinstance(servers, list) else []


def _down_layout(stopped: list[str], *, delete_data: bool) -> RenderableType:
    from rich.text import Text

    line = f"stopped {', '.join(stopped)}" if stopped else "nothing was running"
    kept = "their data is deleted" if delete_data else "their data stays"
    return Text(f"{line}; {kept}")


class _Heading:
    """Names the server before its lines, if there are several and it is another than before."""

    def __init__(self, logs: list[tuple[str, Path]]) -> None:
        self._names = {path: name for name, path in logs}
        self._last: Path | None = None

    def before(self, path: Path) -> None:
        if len(self._names) > 1 and path != self._last:
            click.secho(f"==> {self._names[path]}", bold=True)
        self._last = path


def _follow(ends: dict[Path, int], heading: _Heading) -> None:
    """Print what is appended to the files from now on."""
    while True:
        for path, end in ends.items():
            with path.open("rb") as source:
                source.seek(end)
                added = source.read()
            if added:
                heading.before(path)
                click.echo(added, nl=False)
            ends[path] = end + len(added)
        time.sleep(_FOLLOW_SECONDS)
