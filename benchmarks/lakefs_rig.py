"""A lakeFS of a benchmark's own, what its clients are started with, and what it says it did."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

from measuring import apart, say, settle, spread, stopwatch
from shipped import BRANCH, Shipped

from perago.operations.fence_install import install_fence
from perago.stack.lakefs import ensure_lakefs
from perago.stack.test_server import start_lakefs
from perago.wiring import build_runtime, local_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.flow.runtime import Runtime
    from perago.ports.environment import Journal
    from perago.stack.test_server import TemporaryLakeFS

PEER_BRANCH = "peer"
"""Without the fence: that refuses merges which don't say what head they expect, as the peer's."""

OBJECT_READS = ("GetObject", "get_object")

_COUNTED = re.compile(
    r'^(?:api|gateway)_request_duration_seconds_(count|sum)\{.*operation="(\w+)"\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Served:
    """What the server did, by its own account: requests and their seconds by operation.

    ``written`` is the system's account of it: all bytes it wrote, to connections and to files.
    """

    requests: Counter[str]
    seconds: Counter[str]
    written: int

    def since(self, before: Served) -> Served:
        return Served(
            self.requests - before.requests,
            Counter({name: s - before.seconds[name] for name, s in self.seconds.items()}),
            self.written - before.written,
        )

    @property
    def object_reads(self) -> int:
        return sum(self.requests[name] for name in OBJECT_READS)


class Lake:
    """The server, and its clients' way to it."""

    def __init__(self, scratch: Path, server: TemporaryLakeFS, lakectl: Path) -> None:
        self.scratch = scratch
        self.server = server
        self._lakectl = lakectl
        self._lakectl_config = scratch / "lakectl.yaml"
        self._lakectl_config.write_text("{}\n")  # else it would read the user's own
        self._caches = spread(scratch / "caches")
        self._outputs = spread(scratch / "outputs")

    def shipped(self, repository: str, tree: Path) -> Shipped:
        """Perago with a repository that has the tree's files, on both branches, ours fenced."""
        shipped = self.at(repository)
        store = shipped.store
        store.create_repository(repository, default_branch=BRANCH)
        with stopwatch() as taken:
            uploads = local_engine().scan(tree, "/").uploads
            store.upload(repository, BRANCH, uploads)
            store.commit(repository, BRANCH, message="the files", metadata={})
        say(f"  put {len(uploads):,} objects there in {taken[0]:.0f} s")
        store.create_branch(repository, PEER_BRANCH, BRANCH)
        install_fence(store, repository, BRANCH)
        settle()
        return shipped

    def at(self, repository: str) -> Shipped:
        """Perago as it ships, with the settings that lead here."""
        return Shipped(
            self.scratch / f"home-{repository}",
            repository=repository,
            store="lakefs",
            lakefs_endpoint=self.server.endpoint,
            lakefs_access_key_id=self.server.access_key_id,
            lakefs_secret_access_key=self.server.secret_access_key,
            lakefs_storage_namespace=self.server.storage_namespace,
        )

    def runtime(self, shipped: Shipped, journal: Journal, cache: Path) -> Runtime:
        """As it ships, with its object cache there; cold if the directory is a new one."""
        runtime = build_runtime(shipped.settings.model_copy(update={"cache": cache}), journal)
        # A worker's process has long had its connections when a task comes.
        runtime.store.head(shipped.repository, BRANCH)
        return runtime

    def new_cache(self) -> Path:
        return apart(self._caches)

    def new_output(self) -> Path:
        return apart(self._outputs)

    def lakectl(self, *arguments: str) -> float:
        """Seconds of the whole process, its start included."""
        with stopwatch() as taken:
            subprocess.run(
                [str(self._lakectl), "--config", str(self._lakectl_config), *arguments],
                check=True,
                env={**os.environ, **self.server.settings},
                stdout=subprocess.DEVNULL,
            )
        return taken[0]

    def served(self) -> Served:
        with build_opener(ProxyHandler({})).open(f"{self.server.endpoint}/metrics") as answer:
            page = answer.read().decode()
        requests: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for kind, operation, value in _COUNTED.findall(page):
            if kind == "count":
                requests[operation] += int(float(value))
            else:
                seconds[operation] += float(value)  # type: ignore[assignment]
        io = Path(f"/proc/{self.server.pid}/io").read_text().split()
        return Served(requests, seconds, int(io[io.index("wchar:") + 1]))


@contextmanager
def lake(scratch: Path) -> Iterator[Lake]:
    binaries = ensure_lakefs(lambda line: say(f"  {line}"))
    with start_lakefs(scratch / "server") as server:
        yield Lake(scratch, server, binaries.lakectl)
