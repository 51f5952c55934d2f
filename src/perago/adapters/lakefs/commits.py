"""What lakeFS tells of commits, and of how two of them differ."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from perago.adapters.lakefs.client import PAGE
from perago.adapters.lakefs.fence import COMMIT_ID
from perago.adapters.lakefs.responses import Request
from perago.adapters.local_io.parallel import in_parallel
from perago.model.commit import Commit, Difference, DifferenceKind, ObjectEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.adapters.lakefs.client import ApiClient

_STAT_THREADS = 8
_COMMITS_KNOWN = 1000


class Commits:
    """A branch stands for its head here: what is uncommitted is no part of a ref's history."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._known: dict[tuple[str, str], Commit] = {}

    def get(self, repository: str, ref: str) -> Commit:
        """A commit that was read before isn't read again: it never changes."""
        known = self._known.get((repository, ref))
        if known is not None:
            return known
        found = self._api.read(
            Request(f"reading commit {ref!r}", repository, ref=ref),
            lambda client, timeouts: client.commits_api.get_commit(
                repository, ref, _request_timeout=timeouts
            ),
        )
        commit = commit_of(found.to_dict())
        if len(self._known) >= _COMMITS_KNOWN:
            self._known.clear()
        self._known[repository, commit.id] = commit
        return commit

    def history(self, repository: str, ref: str, limit: int | None) -> Iterator[Commit]:
        amount = PAGE if limit is None else min(limit, PAGE)
        pages = self._api.pages(
            Request(f"reading the history of {ref!r}", repository, ref=ref),
            lambda client, after, timeouts: client.refs_api.log_commits_with_http_info(
                repository,
                ref,
                after=after,
                amount=amount,
                first_parent=True,
                _request_timeout=timeouts,
                _preload_content=False,
            ),
        )
        return map(commit_of, islice(chain.from_iterable(pages), limit))

    def differences(
        self, repository: str, before: str, after: str, prefix: str
    ) -> Iterator[Difference]:
        old, new = (self._id_of(repository, ref) for ref in (before, after))

        def sides(found: tuple[str, DifferenceKind]) -> Difference:
            key, kind = found
            was = None if kind is DifferenceKind.ADDED else self._stat(repository, old, key)
            now = None if kind is DifferenceKind.REMOVED else self._stat(repository, new, key)
            return Difference(key, was, now)

        changed = self.changed_keys(repository, old, new, prefix)
        while page := list(islice(changed, PAGE)):
            yield from sorted(
                in_parallel(page, sides, threads=_STAT_THREADS), key=lambda found: found.key
            )

    def changed_keys(
        self, repository: str, before: str, after: str, prefix: str
    ) -> Iterator[tuple[str, DifferenceKind]]:
        old, new = (self._id_of(repository, ref) for ref in (before, after))
        if old == new:
            return
        pages = self._api.pages(
            Request(f"comparing {before!r} and {after!r}", repository, ref=after),
            lambda client, offset, timeouts: client.refs_api.diff_refs_with_http_info(
                repository,
                old,
                new,
                type="two_dot",
                prefix=prefix,
                after=offset,
                amount=PAGE,
                _request_timeout=timeouts,
                _preload_content=False,
            ),
        )
        for found in chain.from_iterable(pages):
            yield found["path"], DifferenceKind(found["type"])

    def _stat(self, repository: str, ref: str, key: str) -> ObjectEntry:
        found = self._api.read(
            Request(f"looking at {key!r} at {ref!r}", repository, ref=ref),
            lambda client, timeouts: client.objects_api.stat_object(
                repository, ref, key, user_metadata=False, _request_timeout=timeouts
            ),
        )
        return ObjectEntry(key, found.size_bytes, found.checksum, found.physical_address)

    def _id_of(self, repository: str, ref: str) -> str:
        return ref if COMMIT_ID.fullmatch(ref) else self.get(repository, ref).id


def commit_of(found: Mapping[str, Any]) -> Commit:
    return Commit(
        found["id"],
        tuple(found["parents"]),
        found["meta_range_id"],
        found["message"],
        dict(found.get("metadata") or {}),
        float(found["creation_date"]),
    )
