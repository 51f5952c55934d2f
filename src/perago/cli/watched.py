"""A run to its end in front of a person: worked on by this process, or by Conductor's workers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from perago.cli.followed import followed
from perago.cli.live import PlainLines, watching
from perago.model.run import RunStatus
from perago.operations.following import follow
from perago.ports.runs import SharedRuns
from perago.worker.pipeline_runner import run_pipeline

if TYPE_CHECKING:
    from perago.model.run import RunRecord
    from perago.ports.runs import Runs
    from perago.settings import Settings


def watch_to_its_end(
    settings: Settings,
    runs: Runs,
    run_id: str,
    *,
    resume: bool = False,
    in_words: bool = False,
) -> RunRecord:
    """The run once it has ended, or as it stands when the person has seen enough.

    An interrupt pauses a run of this machine. On Conductor it only ends the watching, and the
    record says RUNNING. With ``resume`` a run that stands still is set going first. ``in_words``
    is for people who read in a file what they can't watch.
    """
    record = runs.get(run_id)
    if not isinstance(runs, SharedRuns):
        with watching(record, elsewhere=PlainLines() if in_words else None) as watcher:
            return run_pipeline(settings, run_id, watcher, resume=resume)
    if resume and record.status is not RunStatus.RUNNING:
        runs.resume(run_id)
        record = runs.get(run_id)
    with suppress(KeyboardInterrupt), followed(record, in_words=in_words) as view:
        for sight in follow(runs, record):
            record = sight.record
            view.show(sight)
    return record
