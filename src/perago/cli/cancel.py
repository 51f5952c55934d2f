"""``perago cancel``: a person ends a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perago.cli.options import common_with

if TYPE_CHECKING:
    from perago.cli.options import Speaker
    from perago.settings import Settings


@click.command()
@click.argument("run")
@click.option("--reason", default="cancelled by a person", show_default=True, help="Kept with it.")
@common_with(on=True)
def command(*, run: str, reason: str, speaker: Speaker, settings: Settings) -> None:
    """End a run for good; what its completed steps published stays published.

    RUN is a run's id, or a start of it that no other run has. The process working on the run
    stops by itself, and an attempt in progress is refused at its next fence. One that has passed
    its last fence may still publish; its report is not accepted, and the next run on that branch
    won't start from such a commit unless a person says --from-head.

    \b
    JSON: {id, status, reason, output_ref}
    """
    from rich.text import Text

    from perago.cli.opening import for_this_command
    from perago.wiring import open_runs

    runs = for_this_command(open_runs(settings))
    found = runs.find(run)
    runs.cancel(found.id, reason)
    record = runs.get(found.id)
    speaker.say(
        {
            "id": record.id,
            "status": record.status.value,
            "reason": record.reason,
            "output_ref": record.output_ref,
        },
        lambda: Text(f"run {record.id} is {record.status}: {record.reason}"),
    )
