"""``perago gc``: what crashed attempts left behind, and bytes that nothing refers to."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from perago.cli.options import common
from perago.cli.phrasing import count, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.settings import Settings

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_period(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    """The seconds of ``90s``, ``15m``, ``12h``, ``7d`` or ``2w``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no period: write 90s, 15m, 12h, 7d or 2w.")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


@click.command()
@click.option(
    "--keep",
    callback=parse_period,
    metavar="PERIOD",
    default="7d",
    show_default=True,
    help="Keep commits that were made, or last were a branch's head, within this time.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@common
def command(*, keep: float, dry_run: bool, speaker: Speaker, settings: Settings) -> None:
    """Remove what dead attempts left, then commits and bytes no branch leads to.

    Work that is going on is never touched. Uploads under way are waited for, up to 30 seconds.

    \b
    JSON: {"dry_run", "directories": [path], "staging_branches": ["repository/branch"], "commits",
      "trees", "ranges", "objects", "bytes", "temporary_files"}
    """
    from perago.cli.opening import for_this_command
    from perago.operations.collecting import collect_leftovers
    from perago.wiring import open_store, system_clock

    store = for_this_command(open_store(settings))
    collected = collect_leftovers(
        store, settings.attempts, now=system_clock().now(), dry_run=dry_run
    )
    report = store.gc(keep_seconds=keep, dry_run=dry_run)
    document = {
        "directories": [str(path) for path in collected.directories],
        "staging_branches": [f"{repository}/{name}" for repository, name in collected.branches],
        **asdict(report),
    }
    speaker.say(document, lambda: _layout(document))


def _layout(done: dict[str, object]) -> RenderableType:
    from rich.text import Text

    directories, branches = done["directories"], done["staging_branches"]
    lines = [*map(str, _listed(directories)), *map(str, _listed(branches))]
    verb = "would remove" if done["dry_run"] else "removed"
    number = {name: int(str(done[name])) for name in ("commits", "objects", "bytes")}
    lines.append(
        f"{verb} {count(len(_listed(directories)), 'attempt directory')}, "
        f"{count(len(_listed(branches)), 'staging branch')}, "
        f"{count(number['commits'], 'commit')}, {count(number['objects'], 'object')}: "
        f"{size(number['bytes'])}"
    )
    return Text("\n".join(lines))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
