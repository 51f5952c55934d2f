"""The data plane: downloads and uploads of objects through lakeFS's S3 gateway."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from perago.adapters.lakefs.download import Downloader
from perago.adapters.lakefs.s3_client import RequestTimeouts, S3Clients
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


_REQUEST_SECONDS = 600.0
_COMPLETION_SECONDS = 600.0  # some storages copy all parts to complete a large object
_PART_RETRIES = 5


class Transfers:
    """Downloads and uploads as :class:`perago.ports.store.Store` promises; for one process.

    A refusal is a StoreRefusedError, also if the branch doesn't exist.
    """

    def __init__(self, config: LakeFSConfig, cache: ObjectCache | None) -> None:
        self._config = config
        self._cache = cache
        self._clients = S3Clients(config)
        self._read_timeouts = RequestTimeouts(config.timeouts.read, _REQUEST_SECONDS)
        self._write_timeouts = RequestTimeouts(config.timeouts.mutation, _REQUEST_SECONDS)
        self._part_timeouts = RequestTimeouts(
            _COMPLETION_SECONDS, _COMPLETION_SECONDS, _PART_RETRIES
        )

    def close(self) -> None:
        """Close the connections, but not the cache."""
        self._clients.close()

    def download(
        self, repository: str, ref: str, wanted: Sequence[Download], progress: OnTransfer | None
    ) -> Fetched:
        tally = Tally(
            progress, objects=len(wanted), total_bytes=sum(one.entry.size for one in wanted)
        )
        cached, missing = self._cache.copy_out(wanted, tally) if self._cache else ([], wanted)
        fetched = self._fetch(repository, ref, missing, tally) if missing else []
        tally.end()
        moved = sum(one.entry.size for one in missing)
        return Fetched(cached + fetched, Transfer(len(missing), moved, len(missing), moved))

    def _fetch(
        self, repository: str, ref: str, missing: Sequence[Download], tally: Tally
    ) -> list[FetchedFile]:
        store = self._clients.get(repository, self._read_timeouts)
        with self._cache.writer() if self._cache else nullcontext() as writer:
            return Downloader(self._config, store, ref, tally, writer).run(missing)

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: OnTransfer | None
    ) -> Transfer:
        size = sum(file.signature.size for file in files)
        tally = Tally(progress, objects=len(files), total_bytes=size)
        Uploader(
            self._config,
            self._clients.get(repository, self._write_timeouts),
            self._clients.get(repository, self._part_timeouts),
            branch,
            tally,
        ).run(files)
        tally.end()
        return Transfer(len(files), size, len(files), size)
