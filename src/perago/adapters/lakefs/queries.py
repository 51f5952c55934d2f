"""Reads of lakeFS's metadata: repositories, branches, commits, objects and differences."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from perago.adapters.lakefs.client import PAGE
from perago.adapters.lakefs.fence import COMMIT_ID
from perago.adapters.lakefs.responses import Request
from perago.adapters.local_io.parallel import in_parallel
from perago.errors import CommitNotFoundError
from perago.model.commit import Branch, Commit, Difference, DifferenceKind, ObjectEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.adapters.lakefs.client import ApiClient

_STAT_THREADS = 8
_CACHED_COMMITS = 1000


class Queries:
    """Commits and differences of a branch are those of its head, without uncommitted objects."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._commits: dict[tuple[str, str], Commit] = {}

    # --- repositories and branches ----------------------------------------------------------------

    def repositories(self) -> list[str]:
        found = self._client.listing(
            Request("listing repositories"),
            lambda sdk, **options: sdk.repositories_api.list_repositories_with_http_info(**options),
        )
        return sorted(entry["id"] for entry in found)

    def default_branch(self, repository: str) -> str:
        """Raises RepositoryNotFoundError."""
        found = self._client.read(
            Request(f"reading repository {repository!r}", repository),
            lambda sdk, **options: sdk.repositories_api.get_repository(repository, **options),
        )
        return str(found.default_branch)

    def head(self, repository: str, branch: str) -> Commit:
        """Raises BranchNotFoundError, RepositoryNotFoundError."""
        found = self._client.read(
            Request(f"reading the head of {branch!r}", repository, branch),
            lambda sdk, **options: sdk.branches_api.get_branch(repository, branch, **options),
        )
        return self.commit(repository, found.commit_id)

    def branches(self, repository: str, prefix: str) -> Iterator[Branch]:
        found = self._client.listing(
            Request(f"listing the branches of {repository!r}", repository),
            lambda sdk, **options: sdk.branches_api.list_branches_with_http_info(
                repository, prefix=prefix, show_hidden=True, **options
            ),
        )
        return (Branch(entry["id"], entry["commit_id"]) for entry in found)

    # --- commits ----------------------------------------------------------------------------------

    def commit(self, repository: str, ref: str) -> Commit:
        """A commit is read once and then cached: it never changes. Raises CommitNotFoundError."""
        cached = self._commits.get((repository, ref))
        if cached is not None:
            return cached
        found = self._client.read(
            Request(f"reading commit {ref!r}", repository, ref=ref),
            lambda sdk, **options: sdk.commits_api.get_commit(repository, ref, **options),
        )
        commit = commit_of(found.to_dict())
        if len(self._commits) >= _CACHED_COMMITS:
            self._commits.clear()
        self._commits[repository, commit.id] = commit
        return commit

    def history(self, repository: str, ref: str, limit: int | None) -> Iterator[Commit]:
        found = self._client.listing(
            Request(f"reading the history of {ref!r}", repository, ref=ref),
            lambda sdk, **options: sdk.refs_api.log_commits_with_http_info(
                repository, ref, first_parent=True, **options
            ),
            amount=_page_size(limit),
        )
        return map(commit_of, islice(found, limit))

    def differences(
        self, repository: str, before: str, after: str, prefix: str
    ) -> Iterator[Difference]:
        old, new = self._commit_id(repository, before), self._commit_id(repository, after)

        def difference(changed: tuple[str, DifferenceKind]) -> Difference:
            key, kind = changed
            was = None if kind is DifferenceKind.ADDED else self._stat(repository, old, key)
            now = None if kind is DifferenceKind.REMOVED else self._stat(repository, new, key)
            return Difference(key, was, now)

        changed = self.changed_keys(repository, old, new, prefix)
        while page := list(islice(changed, PAGE)):
            found = in_parallel(page, difference, threads=_STAT_THREADS)
            yield from sorted(found, key=lambda one: one.key)

    def changed_keys(
        self, repository: str, before: str, after: str, prefix: str
    ) -> Iterator[tuple[str, DifferenceKind]]:
        old, new = self._commit_id(repository, before), self._commit_id(repository, after)
        if old == new:
            return
        found = self._client.listing(
            Request(f"comparing {before!r} and {after!r}", repository, ref=after),
            lambda sdk, **options: sdk.refs_api.diff_refs_with_http_info(
                repository, old, new, type="two_dot", prefix=prefix, **options
            ),
        )
        for entry in found:
            yield entry["path"], DifferenceKind(entry["type"])

    def _commit_id(self, repository: str, ref: str) -> str:
        return ref if COMMIT_ID.fullmatch(ref) else self.commit(repository, ref).id

    # --- objects ----------------------------------------------------------------------------------

    def objects(self, repository: str, ref: str, prefix: str) -> Iterator[ObjectEntry]:
        found = self._client.listing(
            Request(f"listing objects at {ref!r}", repository, ref=ref),
            lambda sdk, **options: sdk.objects_api.list_objects_with_http_info(
                repository, ref, prefix=prefix, user_metadata=False, presign=False, **options
            ),
        )
        return map(_entry_of, found)

    def uncommitted(self, repository: str, branch: str, limit: int | None) -> list[str]:
        """The keys of the branch's uncommitted changes, up to ``limit``."""
        found = self._client.listing(
            Request(f"looking for uncommitted objects on {branch!r}", repository, branch),
            lambda sdk, **options: sdk.branches_api.diff_branch_with_http_info(
                repository, branch, **options
            ),
            amount=_page_size(limit),
        )
        return [entry["path"] for entry in islice(found, limit)]

    def content(self, repository: str, ref: str, key: str) -> bytes | None:
        """The bytes of a small object; None if there is no such object, or no such commit."""
        try:
            found: bytes = self._client.read(
                Request(f"reading {key!r} at {ref!r}", repository, ref=ref),
                lambda sdk, **options: bytes(
                    sdk.objects_api.get_object(repository, ref, key, **options)
                ),
            )
        except CommitNotFoundError:  # lakeFS answers the same for both
            return None
        return found

    def _stat(self, repository: str, ref: str, key: str) -> ObjectEntry:
        found = self._client.read(
            Request(f"reading the metadata of {key!r} at {ref!r}", repository, ref=ref),
            lambda sdk, **options: sdk.objects_api.stat_object(
                repository, ref, key, user_metadata=False, **options
            ),
        )
        return _entry_of(found.to_dict())


def _page_size(limit: int | None) -> int:
    return PAGE if limit is None else min(limit, PAGE)


def commit_of(found: Mapping[str, Any]) -> Commit:
    return Commit(
        found["id"],
        tuple(found["parents"]),
        found["meta_range_id"],
        found["message"],
        dict(found.get("metadata") or {}),
        float(found["creation_date"]),
    )


def _entry_of(found: Mapping[str, Any]) -> ObjectEntry:
    return ObjectEntry(
        found["path"], found.get("size_bytes") or 0, found["checksum"], found["physical_address"]
    )
