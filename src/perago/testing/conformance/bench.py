"""What the suites need of a store, whichever it is: a repository to fill and to look into."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from perago.model.changes import Download, Signature, Upload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.model.commit import Commit
    from perago.model.outcome import Transfer
    from perago.ports.store import Store


class Bench:
    """A fresh repository with the few moves the suite is made of."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.repository = f"conformance-{uuid.uuid4().hex[:16]}"
        self.root = store.create_repository(self.repository)
        self._directory = directory

    def upload_of(self, key: str, data: bytes) -> Upload:
        """A new local file with those bytes, to be stored under ``key``."""
        path = self._directory / uuid.uuid4().hex
        path.write_bytes(data)
        return Upload(key, path, Signature.of(path.stat()))

    def put(self, branch: str, files: Mapping[str, bytes]) -> Transfer:
        uploads = [self.upload_of(key, data) for key, data in files.items()]
        return self.store.upload(self.repository, branch, uploads)

    def commit(
        self, branch: str, files: Mapping[str, bytes], deletes: Sequence[str] = ()
    ) -> Commit:
        self.put(branch, files)
        self.store.delete_objects(self.repository, branch, deletes)
        # Ids may hash the time in seconds only: something in the metadata has to differ.
        metadata = {"conformance": uuid.uuid4().hex}
        return self.store.commit(self.repository, branch, message="a change", metadata=metadata)

    def staged(self, files: Mapping[str, bytes], deletes: Sequence[str] = ()) -> Commit:
        """A commit on a branch of its own that starts at the default branch's head."""
        branch = f"staging-{uuid.uuid4().hex}"
        self.store.create_branch(self.repository, branch, self.head.id)
        return self.commit(branch, files, deletes)

    def merge(self, source: str, *, expected_head: str | None = None) -> Commit:
        return self.store.merge(
            self.repository,
            source,
            "main",
            expected_head=expected_head,
            message="published",
            metadata={"conformance": uuid.uuid4().hex},
        )

    def relocate(self, to: str, *, expected_head: str | None = None) -> None:
        self.store.relocate(self.repository, "main", to, expected_head=expected_head)

    @property
    def head(self) -> Commit:
        return self.store.head(self.repository, "main")

    def keys(self, ref: str, prefix: str = "") -> list[str]:
        return [entry.key for entry in self.store.list_objects(self.repository, ref, prefix=prefix)]

    def content(self, ref: str) -> dict[str, bytes]:
        """Every object at ``ref``, downloaded."""
        entries = list(self.store.list_objects(self.repository, ref))
        wanted = [Download(entry, self._directory / uuid.uuid4().hex) for entry in entries]
        self.store.download(self.repository, ref, wanted)
        return {item.entry.key: Path(item.path).read_bytes() for item in wanted}
