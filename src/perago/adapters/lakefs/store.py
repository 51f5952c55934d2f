"""The store port on a lakeFS server: mutations here, reads in queries, bytes in transfers."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.adapters.lakefs.checksums import MD5
from perago.adapters.lakefs.client import PAGE, ApiClient, models
from perago.adapters.lakefs.fence import NO_COMMIT, Fences
from perago.adapters.lakefs.queries import Queries, commit_of
from perago.adapters.lakefs.responses import Request
from perago.adapters.lakefs.transfers import Transfers
from perago.errors import (
    AnswerLostError,
    BranchNotFoundError,
    HeadMovedError,
    StoreError,
    StoreRefusedError,
)
from perago.model.attempt import new_execution_id, trial_branch
from perago.model.commit import EXPECTED_HEAD_KEY, Atomicity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.adapters.lakefs.cache import ObjectCache
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.model.commit import Branch, Commit, Difference, DifferenceKind, ObjectEntry
    from perago.model.progress import Transfer
    from perago.model.workspace import Download, Fetched, Upload
    from perago.ports.store import OnTransfer


class LakeFSStore:
    """A :class:`perago.ports.store.Store`, for one process."""

    def __init__(self, config: LakeFSConfig, *, cache: ObjectCache | None = None) -> None:
        self._config = config
        self._client = ApiClient(config)
        self._queries = Queries(self._client)
        self._transfers = Transfers(config, cache)
        self._cache = cache
        self._fences = Fences(self._queries.content, self.probe_fence)

    def close(self) -> None:
        """Close the connections and the cache."""
        self._client.close()
        self._transfers.close()
        if self._cache is not None:
            self._cache.close()

    # --- repositories and history -----------------------------------------------------------------

    def create_repository(self, repository: str, *, default_branch: str = "main") -> Commit:
        if self._config.storage_namespace is None:
            raise StoreRefusedError(
                f"lakeFS has no repository {repository!r}, and the storage for a new one isn't set",
                fix="create it in lakeFS, or set PERAGO_LAKEFS_STORAGE_NAMESPACE (s3://BUCKET/PATH)",
            )
        namespace = f"{self._config.storage_namespace.rstrip('/')}/{repository}"
        self._client.mutate(
            Request(f"creating repository {repository!r}", repository),
            lambda sdk, **options: sdk.repositories_api.create_repository(
                models().RepositoryCreation(
                    name=repository, storage_namespace=namespace, default_branch=default_branch
                ),
                **options,
            ),
        )
        return self.head(repository, default_branch)

    def repositories(self) -> list[str]:
        return self._queries.repositories()

    def default_branch(self, repository: str) -> str:
        """Raises RepositoryNotFoundError."""
        return self._queries.default_branch(repository)

    def new_branch_source(self, repository: str) -> str:
        return self.default_branch(repository)

    def get_commit(self, repository: str, ref: str) -> Commit:
        return self._queries.commit(repository, ref)

    def history(self, repository: str, ref: str, *, limit: int | None = None) -> Iterator[Commit]:
        return self._queries.history(repository, ref, limit)

    def diff(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[Difference]:
        return self._queries.differences(repository, before, after, prefix)

    def changed_keys(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[tuple[str, DifferenceKind]]:
        return self._queries.changed_keys(repository, before, after, prefix)

    # --- branches ---------------------------------------------------------------------------------

    def head(self, repository: str, branch: str) -> Commit:
        return self._queries.head(repository, branch)

    def branches(self, repository: str, *, prefix: str = "") -> Iterator[Branch]:
        return self._queries.branches(repository, prefix)

    def create_branch(self, repository: str, branch: str, at: str, *, hidden: bool = False) -> None:
        self._client.mutate(
            Request(f"creating branch {branch!r} at {at!r}", repository, branch, ref=at),
            lambda sdk, **options: sdk.branches_api.create_branch(
                repository,
                models().BranchCreation(name=branch, source=at, hidden=hidden),
                **options,
            ),
        )

    def delete_branch(self, repository: str, branch: str, *, timeout: float | None = None) -> None:
        self._client.mutate(
            Request(f"deleting branch {branch!r}", repository, branch),
            lambda sdk, **options: sdk.branches_api.delete_branch(repository, branch, **options),
            timeout=timeout,
        )

    # --- objects ----------------------------------------------------------------------------------

    def list_objects(self, repository: str, ref: str, *, prefix: str = "") -> Iterator[ObjectEntry]:
        return self._queries.objects(repository, ref, prefix)

    def uncommitted(self, repository: str, branch: str, *, limit: int | None = 10) -> list[str]:
        return self._queries.uncommitted(repository, branch, limit)

    def download(
        self,
        repository: str,
        ref: str,
        wanted: Sequence[Download],
        progress: OnTransfer | None = None,
    ) -> Fetched:
        return self._transfers.download(repository, ref, wanted, progress)

    def upload(
        self,
        repository: str,
        branch: str,
        files: Sequence[Upload],
        progress: OnTransfer | None = None,
    ) -> Transfer:
        try:
            return self._transfers.upload(repository, branch, files, progress)
        except StoreRefusedError:
            self._assert_branch(repository, branch)  # a missing branch is the better error
            raise

    def _assert_branch(self, repository: str, branch: str) -> None:
        """Raises BranchNotFoundError if there is no such branch, and nothing else."""
        try:
            self.head(repository, branch)
        except BranchNotFoundError:
            raise
        except StoreError:
            return

    def holds(self, entry: ObjectEntry, path: Path) -> bool:
        """Compares md5s: lakeFS's checksum, for an object that was uploaded in one part."""
        if not MD5.fullmatch(entry.checksum):
            return False
        with path.open("rb", buffering=0) as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        return found.hexdigest() == entry.checksum

    def delete_objects(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), PAGE):
            self._delete_page(repository, branch, keys[start : start + PAGE])

    def _delete_page(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        request = Request(f"deleting {len(keys)} objects on {branch!r}", repository, branch)
        deleted = self._client.mutate(
            request,
            lambda sdk, **options: sdk.objects_api.delete_objects(
                repository, branch, models().PathList(paths=list(keys)), **options
            ),
        )
        failed = deleted.errors or []
        if failed:
            named = "; ".join(f"{error.path!r}: {error.message}" for error in failed[:5])
            raise StoreRefusedError(f"{request.doing}: {len(failed)} of them failed: {named}")

    # --- the three ways a branch moves ------------------------------------------------------------

    def commit(
        self, repository: str, branch: str, *, message: str, metadata: Mapping[str, str]
    ) -> Commit:
        found = self._client.mutate(
            Request(f"committing on {branch!r}", repository, branch),
            lambda sdk, **options: sdk.commits_api.commit(
                repository,
                branch,
                models().CommitCreation(message=message, metadata=dict(metadata)),
                **options,
            ),
        )
        return commit_of(found.to_dict())

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        *,
        expected_head: str | None,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> Commit:
        expectation = {}
        if expected_head is not None:
            self._assert_conditional(repository, source, branch)
            expectation = {EXPECTED_HEAD_KEY: expected_head}
        try:
            merged = self._merge(
                repository, source, branch, message, {**metadata, **expectation}, timeout=timeout
            )
        except AnswerLostError:
            self._fences.recheck(repository)  # a restarted server may have other settings
            raise
        return self.get_commit(repository, merged)

    def relocate(
        self,
        repository: str,
        branch: str,
        to: str,
        *,
        expected_head: str | None,
        timeout: float | None = None,
    ) -> None:
        if expected_head is not None:
            raise StoreRefusedError("lakeFS can't make a reset depend on the branch's head")
        self._client.mutate(
            Request(f"resetting {branch!r} to {to!r}", repository, branch, ref=to),
            lambda sdk, **options: sdk.experimental_api.hard_reset_branch(
                repository, branch, to, **options
            ),
            timeout=timeout,
        )

    def _merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        *,
        timeout: float | None = None,
        allow_empty: bool = False,
    ) -> str:
        """Merge as one squashed commit; return its id."""
        merged: Any = self._client.mutate(
            Request(f"merging {source!r} into {branch!r}", repository, branch, source),
            lambda sdk, **options: sdk.refs_api.merge_into_branch(
                repository,
                source,
                branch,
                models().Merge(
                    message=message,
                    metadata=dict(metadata),
                    squash_merge=True,
                    allow_empty=allow_empty,
                ),
                **options,
            ),
            timeout=timeout,
        )
        return str(merged.reference)

    # --- compare-and-swap -------------------------------------------------------------------------

    @property
    def outlives_callers(self) -> bool:
        """True: the server completes a request whose sender has died."""
        return True

    def atomicity(self, repository: str, ref: str, *, trial: str | None = None) -> Atomicity:
        """A merge of ``ref`` is compare-and-swap if ``ref`` has the fence and the server runs it.

        A reset never is: lakeFS runs no action for it.
        """
        shortcoming = self._fences.shortcoming(repository, ref, trial)
        return Atomicity(cas_merge=shortcoming is None, cas_relocate=False, shortcoming=shortcoming)

    def probe_fence(self, repository: str, ref: str, trial: str | None = None) -> bool:
        """Whether the server refuses a merge that expects a wrong head.

        Tries it on a hidden branch, ``trial`` or a new one, and deletes the branch afterwards.
        Raises StoreError if the trial itself fails.
        """
        branch = trial or trial_branch(new_execution_id())
        self.create_branch(repository, branch, ref, hidden=True)
        wrong = {EXPECTED_HEAD_KEY: NO_COMMIT}
        try:
            self._merge(repository, ref, branch, "perago fence probe", wrong, allow_empty=True)
        except HeadMovedError:
            return True
        finally:
            with suppress(StoreError):  # if it can't be deleted now, `perago gc` finds it
                self.delete_branch(repository, branch)
        return False

    def _assert_conditional(self, repository: str, source: str, branch: str) -> None:
        """Raises StoreRefusedError if the server would ignore the expected head."""
        if shortcoming := self._fences.shortcoming(repository, source):
            raise StoreRefusedError(
                f"a merge can't depend on the branch's head: {shortcoming}",
                fix=f"`perago fence install {repository} --branch {branch}`",
            )
