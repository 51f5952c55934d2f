"""The bench of :mod:`perago.testing`, with a repository on a real lakeFS for its store."""

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.adapters.lakefs.store import LakeFSStore
from perago.model.commit import ACTIONS_PREFIX
from perago.testing import Bench, ManualClock
from perago.testing.conformance.store import StoreBench


def store_on(server, *, secret=None, cache=None):
    """A store on a server; ``secret`` replaces the right one."""
    return LakeFSStore(
        LakeFSConfig(
            server.endpoint,
            server.access_key_id,
            secret or server.secret_access_key,
            storage_namespace=server.storage_namespace,
        ),
        cache=cache,
    )


class LakeFSBench(Bench):
    """Its repository is new. With ``fenced``, merges compare and swap there."""

    def __init__(self, root, server, *, fenced, cache=None):
        self.root = root
        self.branch = "main"
        self.clock = ManualClock()
        self.store = store_on(server, cache=cache)
        self.queue = EmbeddedQueue(root / "queue.db", clock=self.clock, durable=False)
        self.attempts = root / "attempts"
        (root / "outside").mkdir()
        self._outside = StoreBench(self.store, root / "outside")
        self.repository = self._outside.repository
        if fenced:
            self._outside.commit(self.branch, {FENCE_KEY: FENCE_ACTION})

    def write(self, files, *, branch=None):
        puts = {key: _bytes_of(data) for key, data in files.items() if data is not None}
        deletes = [key for key, data in files.items() if data is None]
        return self._outside.commit(branch or self.branch, puts, deletes).id

    def put(self, files, *, branch=None):
        """Leave files on the branch, uncommitted."""
        branch = branch or self.branch
        self._outside.put(branch, {key: _bytes_of(data) for key, data in files.items()})

    def read(self, ref=None):
        """As a workspace would: without the repository's own actions."""
        found = self._outside.content(ref or self.branch)
        return {key: data for key, data in found.items() if not key.startswith(ACTIONS_PREFIX)}


def _bytes_of(data):
    return data.encode() if isinstance(data, str) else data
