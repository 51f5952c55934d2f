"""Sends lineage from a thread of its own, so that no attempt ever waits for whoever takes it."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from queue import Full, Queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from openlineage.client import OpenLineageClient

    from perago.worker.lineage.attempts import Told

QUEUE_LENGTH = 1000
"""What is more than that is dropped: whoever takes it is away, or far too slow."""

CLOSE_SECONDS = 5.0
"""How long the last sending may take. It is as much as OpenLineage allows for one request."""

# A remote's address may have a password in it, and needn't be that of the task's own code.
_NO_SOURCES = {"facets": {"source_code_location": {"disabled": True}}}


class Sender:
    """Sends what it is given, in that order, from when it is made until it is closed.

    ``complain`` is told why something couldn't be sent, once: it is called in the other thread.
    """

    def __init__(
        self, job_namespace: str, dataset_namespace: str, complain: Callable[[str], None]
    ) -> None:
        self._namespaces = (job_namespace, dataset_namespace)
        self._complain = complain
        self._has_complained = False
        self._unsent: Queue[Told | None] = Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="lineage")
        self._thread.start()

    def send(self, told: Told) -> None:
        """Returns at once. Dropped if too much waits already."""
        try:
            self._unsent.put_nowait(told)
        except Full:
            self._complain_once(f"more than {QUEUE_LENGTH} events wait to be taken")

    def close(self) -> None:
        """Send what is left, for :data:`CLOSE_SECONDS` at most: what isn't taken then is lost."""
        with suppress(Full):
            self._unsent.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._complain_once("the last events weren't taken in time")

    def _send_all(self) -> None:
        client = None
        try:
            client = _client()
            while (told := self._unsent.get()) is not None:
                self._send(client, told)
        except Exception as error:  # noqa: BLE001 - a wrong setting, above all
            self._complain_once(_kind(error))
        finally:
            if client is not None:
                client.close(0)

    def _send(self, client: OpenLineageClient, told: Told) -> None:
        from perago.worker.lineage.events import run_event

        try:
            client.emit(run_event(told, *self._namespaces))
        except Exception as error:  # noqa: BLE001 - whatever a transport may raise
            self._complain_once(_kind(error))

    def _complain_once(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._complain(why)


def _client() -> OpenLineageClient:
    """As OpenLineage's own variables and files have it, in which it leaves nothing behind."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import set_producer

    from perago.worker.lineage.events import PRODUCER

    set_producer(PRODUCER)
    # Its warnings repeat what we say once, and may have an address with a key in it.
    logging.getLogger("openlineage").setLevel(logging.CRITICAL)
    before = set(os.environ)
    try:
        return OpenLineageClient(config=_NO_SOURCES)
    finally:
        for name in set(os.environ) - before:
            del os.environ[name]


def _kind(error: Exception) -> str:
    """Of an exception only the kind is told: its words may hold the address with a key in it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ + (f", status {status}" if status else "")
