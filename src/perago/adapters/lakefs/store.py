"""The versioned store on a real lakeFS server."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from perago.adapters.lakefs.checksums import MD5
from perago.adapters.lakefs.client import PAGE, ApiClient
from perago.adapters.lakefs.commits import Commits, commit_of
from perago.adapters.lakefs.fence import NO_COMMIT, Fences
from perago.adapters.lakefs.responses import Request
from perago.adapters.lakefs.transfers import Transfers
from perago.errors import (
    AnswerLostError,
    BranchNotFoundError,
    CommitNotFoundError,
    HeadMovedError,
    StoreError,
    StoreRefusedError,
)
from perago.model.attempt import new_execution_id, trial_branch
from perago.model.commit import (
    EXPECTED_HEAD_KEY,
    Atomicity,
    Branch,
    Commit,
    Difference,
    DifferenceKind,
    ObjectEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.adapters.lakefs.cache import ObjectCache
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.model.progress import Transfer
    from perago.model.workspace import Download, Fetched, Upload
    from perago.ports.store import OnTransfer


class LakeFSStore:
    """Implements :class:`perago.ports.store.Store`."""

    def __init__(self, config: LakeFSConfig, *, cache: ObjectCache | None = None) -> None:
        self._config = config
        self._api = ApiClient(config)
        self._gateway = Transfers(config, cache)
        self._cache = cache
        self._commits = Commits(self._api)
        self._fences = Fences(self._read_small, self.probe_fence)

    def close(self) -> None:
        """Let go of its connections and of the cache."""
        self._api.close()
        self._gateway.close()
        if self._cache is not None:
            self._cache.close()

    # --- repositories and history -------------------------------------------------------------

    def create_repository(self, repository: str, *, default_branch: str = "main") -> Commit:
        if self._config.storage_namespace is None:
            raise StoreRefusedError(
                f"lakeFS has no repository {repository!r}, and there is no saying where a new one "
                "would keep its objects",
                fix="create it in lakeFS, or set PERAGO_LAKEFS_STORAGE_NAMESPACE (s3://BUCKET/PATH)",
            )
        namespace = f"{self._config.storage_namespace.rstrip('/')}/{repository}"

        def create(client: Any, timeouts: tuple[float, float]) -> None:
            from lakefs_sdk.models import RepositoryCreation

            client.repositories_api.create_repository(
                RepositoryCreation(
                    name=repository, storage_namespace=namespace, default_branch=default_branch
                ),
                _request_timeout=timeouts,
            )

        self._api.mutate(Request(f"creating repository {repository!r}", repository), create)
        return self.head(repository, default_branch)

    def repositories(self) -> list[str]:
        pages = self._api.pages(
            Request("listing repositories"),
            lambda client, after, timeouts: (
                client.repositories_api.list_repositories_with_http_info(
                    after=after, amount=PAGE, _request_timeout=timeouts, _preload_content=False
                )
            ),
        )
        return sorted(found["id"] for page in pages for found in page)

    def default_branch(self, repository: str) -> str:
        """Raises RepositoryNotFoundError."""
        found = self._api.read(
            Request(f"looking at repository {repository!r}", repository),
            lambda client, timeouts: client.repositories_api.get_repository(
                repository, _request_timeout=timeouts
            ),
        )
        return str(found.default_branch)

    def new_branch_source(self, repository: str) -> str:
        return self.default_branch(repository)

    def get_commit(self, repository: str, ref: str) -> Commit:
        return self._commits.get(repository, ref)

    def history(self, repository: str, ref: str, *, limit: int | None = None) -> Iterator[Commit]:
        return self._commits.history(repository, ref, limit)

    @property
    def outlives_callers(self) -> bool:
        """Yes: the server goes on with a request whose sender is gone."""
        return True

    def atomicity(self, repository: str, ref: str, *, trial: str | None = None) -> Atomicity:
        """Compare-and-swap where the fence is at ``ref``, unchanged, and the server runs it.

        A reset runs no action: it is never conditional.
        """
        shortcoming = self._fences.shortcoming(repository, ref, trial)
        return Atomicity(cas_merge=shortcoming is None, cas_relocate=False, shortcoming=shortcoming)

    # --- branches ------------------------------------------------------------------------------

    def head(self, repository: str, branch: str) -> Commit:
        found = self._api.read(
            Request(f"reading the head of {branch!r}", repository, branch),
            lambda client, timeouts: client.branches_api.get_branch(
                repository, branch, _request_timeout=timeouts
            ),
        )
        return self.get_commit(repository, found.commit_id)

    def branches(self, repository: str, *, prefix: str = "") -> Iterator[Branch]:
        pages = self._api.pages(
            Request(f"listing the branches of {repository!r}", repository),
            lambda client, after, timeouts: client.branches_api.list_branches_with_http_info(
                repository,
                prefix=prefix,
                after=after,
                amount=PAGE,
                show_hidden=True,
                _request_timeout=timeouts,
                _preload_content=False,
            ),
        )
        return (Branch(found["id"], found["commit_id"]) for page in pages for found in page)

    def create_branch(self, repository: str, branch: str, at: str, *, hidden: bool = False) -> None:
        def create(client: Any, timeouts: tuple[float, float]) -> None:
            from lakefs_sdk.models import BranchCreation

            client.branches_api.create_branch(
                repository,
                BranchCreation(name=branch, source=at, hidden=hidden),
                _request_timeout=timeouts,
            )

        doing = f"creating branch {branch!r} at {at!r}"
        self._api.mutate(Request(doing, repository, branch, ref=at), create)

    def delete_branch(self, repository: str, branch: str, *, timeout: float | None = None) -> None:
        self._api.mutate(
            Request(f"deleting branch {branch!r}", repository, branch),
            lambda client, timeouts: client.branches_api.delete_branch(
                repository, branch, _request_timeout=timeouts
            ),
            timeout=timeout,
        )

    # --- objects -------------------------------------------------------------------------------

    def list_objects(self, repository: str, ref: str, *, prefix: str = "") -> Iterator[ObjectEntry]:
        pages = self._api.pages(
            Request(f"listing objects at {ref!r}", repository, ref=ref),
            lambda client, after, timeouts: client.objects_api.list_objects_with_http_info(
                repository,
                ref,
                prefix=prefix,
                after=after,
                amount=PAGE,
                user_metadata=False,
                presign=False,
                _request_timeout=timeouts,
                _preload_content=False,
            ),
        )
        return (_entry(found) for page in pages for found in page)

    def download(
        self,
        repository: str,
        ref: str,
        wanted: Sequence[Download],
        progress: OnTransfer | None = None,
    ) -> Fetched:
        return self._gateway.download(repository, ref, wanted, progress)

    def upload(
        self,
        repository: str,
        branch: str,
        files: Sequence[Upload],
        progress: OnTransfer | None = None,
    ) -> Transfer:
        try:
            return self._gateway.upload(repository, branch, files, progress)
        except StoreRefusedError:
            self._assert_branch(repository, branch)  # that it is gone says more than its status
            raise

    def holds(self, entry: ObjectEntry, path: Path) -> bool:
        """By md5, which is what lakeFS's checksum is for an object that came in one part."""
        if not MD5.fullmatch(entry.checksum):
            return False
        with path.open("rb", buffering=0) as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        return found.hexdigest() == entry.checksum

    def delete_objects(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), PAGE):
            self._delete_page(repository, branch, keys[start : start + PAGE])

    def _delete_page(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        def delete(client: Any, timeouts: tuple[float, float]) -> Any:
            from lakefs_sdk.models import PathList

            return client.objects_api.delete_objects(
                repository, branch, PathList(paths=list(keys)), _request_timeout=timeouts
            )

        request = Request(f"deleting {len(keys)} objects on {branch!r}", repository, branch)
        failed = self._api.mutate(request, delete).errors or []
        if failed:
            named = "; ".join(f"{error.path!r}: {error.message}" for error in failed[:5])
            raise StoreRefusedError(f"{request.doing}: {len(failed)} of them failed: {named}")

    def uncommitted(self, repository: str, branch: str, *, limit: int | None = 10) -> list[str]:
        pages = self._api.pages(
            Request(f"looking for uncommitted objects on {branch!r}", repository, branch),
            lambda client, offset, timeouts: client.branches_api.diff_branch_with_http_info(
                repository,
                branch,
                after=offset,
                amount=PAGE if limit is None else min(limit, PAGE),
                _request_timeout=timeouts,
                _preload_content=False,
            ),
        )
        return [found["path"] for found in islice(chain.from_iterable(pages), limit)]

    def diff(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[Difference]:
        return self._commits.differences(repository, before, after, prefix)

    def changed_keys(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[tuple[str, DifferenceKind]]:
        return self._commits.changed_keys(repository, before, after, prefix)

    # --- the three ways a branch moves -----------------------------------------------------------

    def commit(
        self, repository: str, branch: str, *, message: str, metadata: Mapping[str, str]
    ) -> Commit:
        def commit(client: Any, timeouts: tuple[float, float]) -> Any:
            from lakefs_sdk.models import CommitCreation

            return client.commits_api.commit(
                repository,
                branch,
                CommitCreation(message=message, metadata=dict(metadata)),
                _request_timeout=timeouts,
            )

        request = Request(f"committing on {branch!r}", repository, branch)
        return commit_of(self._api.mutate(request, commit).to_dict())

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
            landed = self._merge(
                repository, source, branch, message, dict(metadata) | expectation, timeout=timeout
            )
        except AnswerLostError:
            self._fences.ask_again(repository)  # the server may come back with other settings
            raise
        return self.get_commit(repository, landed)

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
        self._api.mutate(
            Request(f"resetting {branch!r} to {to!r}", repository, branch, ref=to),
            lambda client, timeouts: client.experimental_api.hard_reset_branch(
                repository, branch, to, _request_timeout=timeouts
            ),
            timeout=timeout,
        )

    # --- the fence -------------------------------------------------------------------------------

    def probe_fence(self, repository: str, ref: str, trial: str | None = None) -> bool:
        """Whether the server refuses a merge that expects another head than there is.

        Tried on a hidden branch of its own, which is gone afterwards; nothing is remembered.
        Raises StoreError if the trial itself fails.
        """
        branch = trial or trial_branch(new_execution_id())
        self.create_branch(repository, branch, ref, hidden=True)
        try:
            self._merge(
                repository,
                ref,
                branch,
                "perago fence probe",
                {EXPECTED_HEAD_KEY: NO_COMMIT},
                allow_empty=True,
            )
        except HeadMovedError:
            return True
        finally:
            with suppress(StoreError):  # `perago gc` finds what couldn't be deleted now
                self.delete_branch(repository, branch)
        return False

    def _assert_conditional(self, repository: str, source: str, branch: str) -> None:
        """Raises StoreRefusedError if nothing at the server would look at the expected head."""
        if shortcoming := self._fences.shortcoming(repository, source):
            raise StoreRefusedError(
                f"a merge can't depend on the branch's head: {shortcoming}",
                fix=f"`perago fence install {repository} --branch {branch}`",
            )

    # --- single requests -------------------------------------------------------------------------

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
        def merge(client: Any, timeouts: tuple[float, float]) -> Any:
            from lakefs_sdk.models import Merge

            return client.refs_api.merge_into_branch(
                repository,
                source,
                branch,
                Merge(
                    message=message,
                    metadata=dict(metadata),
                    squash_merge=True,
                    allow_empty=allow_empty,
                ),
                _request_timeout=timeouts,
            )

        doing = f"merging {source!r} into {branch!r}"
        answer = self._api.mutate(
            Request(doing, repository, branch, source), merge, timeout=timeout
        )
        return str(answer.reference)

    def _read_small(self, repository: str, ref: str, key: str) -> bytes | None:
        try:
            found: bytes = self._api.read(
                Request(f"reading {key!r} at {ref!r}", repository, ref=ref),
                lambda client, timeouts: bytes(
                    client.objects_api.get_object(repository, ref, key, _request_timeout=timeouts)
                ),
            )
        except CommitNotFoundError:  # lakeFS says the same of a missing object and a missing commit
            return None
        return found

    def _assert_branch(self, repository: str, branch: str) -> None:
        """Raises BranchNotFoundError or RepositoryNotFoundError, if that is what is wrong."""
        try:
            self.head(repository, branch)
        except BranchNotFoundError:
            raise
        except StoreError:
            return


def _entry(found: Mapping[str, Any]) -> ObjectEntry:
    return ObjectEntry(
        found["path"], found.get("size_bytes") or 0, found["checksum"], found["physical_address"]
    )
