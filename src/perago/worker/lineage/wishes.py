"""Lineage of what a supervisor runs, if it is set up and the ``lineage`` extra is installed.

OpenLineage's own variables and files say to whom it goes. Otherwise nothing of it is imported.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.machine.openlineage import is_asked_for, job_namespace
from perago.worker.lineage.attempts import LineageWatcher
from perago.worker.lineage.sending import Sender
from perago.worker.telemetry.wishes import complain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.settings import Settings
    from perago.worker.watcher import Watcher


@contextmanager
def lineage(settings: Settings) -> Iterator[list[Watcher]]:
    """The watchers that have to be told what happens: one, or none if nobody asks for lineage."""
    if not is_asked_for(os.environ):
        yield []
        return
    if find_spec("openlineage") is None:
        complain(
            "no lineage is sent: OpenLineage isn't installed",
            fix="pip install 'perago-runtime[lineage]', or set OPENLINEAGE_DISABLED=true",
        )
        yield []
        return
    sender = Sender(job_namespace(os.environ), dataset_namespace(settings), _say_lost)
    watcher = LineageWatcher(sender.send)
    try:
        yield [watcher]
    finally:
        watcher.close()
        sender.close()


def dataset_namespace(settings: Settings) -> str:
    """The store that workspaces are in: a lakeFS by its address, or a directory of this machine."""
    if settings.store == "lakefs":
        return f"lakefs://{urlsplit(settings.lakefs_endpoint or '').netloc}"
    return f"file://{socket.gethostname()}{settings.home.absolute() / 'store'}"


def _say_lost(why: str) -> None:
    complain(
        f"lineage is lost: {why}",
        fix="see to OPENLINEAGE_URL or openlineage.yml, or set OPENLINEAGE_DISABLED=true",
    )
