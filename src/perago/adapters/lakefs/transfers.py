"""The data plane: objects' bytes from and to lakeFS, through its S3 gateway."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from perago.adapters.lakefs.download import Downloader
from perago.adapters.lakefs.s3_client import Connections, RequestTimeouts
from perago.adapters.lakefs.upload import Uploader
from perago.adapters.local_io.parallel import Tally
from perago.model.progress import Transfer
from perago.model.workspace import Fetched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.adapters.lakefs.cache import ObjectCache
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.model.workspace import Download, FetchedFile, Upload
    from perago.ports.store import OnTransfer


_ONE_REQUEST_SECONDS = 600.0
_COMPLETION_SECONDS = 600.0  # putting the parts of a large object together is copying, on some
_REPEATS = 5


class Transfers:
    """Downloads and uploads as :class:`perago.ports.store.Store` promises; for one process.

    What the server says no to is a StoreRefusedError, also where a branch isn't there.
    """

    def __init__(self, config: LakeFSConfig, cache: ObjectCache | None) -> None:
        self._config = config
        self._cache = cache
        self._connections = Connections(config)
        seconds = config.timeouts
        self._reading = RequestTimeouts(seconds.read, _ONE_REQUEST_SECONDS)
        self._writing = RequestTimeouts(seconds.mutation, _ONE_REQUEST_SECONDS)
        self._writing_parts = RequestTimeouts(_COMPLETION_SECONDS, _COMPLETION_SECONDS, _REPEATS)

    def close(self) -> None:
        """Let go of the connections. The cache is its owner's to close."""
        self._connections.close()

    def download(
        self, repository: str, ref: str, wanted: Sequence[Download], progress: OnTransfer | None
    ) -> Fetched:
        tally = Tally(
            progress, objects=len(wanted), total_bytes=sum(one.entry.size for one in wanted)
        )
        delivered, missing = self._cache.deliver(wanted, tally) if self._cache else ([], wanted)
        fetched = self._fetch(repository, ref, missing, tally) if missing else []
        tally.end()
        moved = sum(one.entry.size for one in missing)
        return Fetched(delivered + fetched, Transfer(len(missing), moved, len(missing), moved))

    def _fetch(
        self, repository: str, ref: str, missing: Sequence[Download], tally: Tally
    ) -> list[FetchedFile]:
        store = self._connections.to(repository, self._reading)
        with self._cache.filling() if self._cache else nullcontext() as filling:
            return Downloader(self._config, store, ref, tally, filling).run(missing)

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: OnTransfer | None
    ) -> Transfer:
        size = sum(file.signature.size for file in files)
        tally = Tally(progress, objects=len(files), total_bytes=size)
        Uploader(
            self._config,
            self._connections.to(repository, self._writing),
            self._connections.to(repository, self._writing_parts),
            branch,
            tally,
        ).run(files)
        tally.end()
        return Transfer(len(files), size, len(files), size)
