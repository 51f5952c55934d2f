"""What every store adapter must do, as a pytest class to subclass.

::

    class TestMyStore(StoreConformance, UnconditionalUpdates):
        atomic = False  # what atomicity() is expected to say

        @pytest.fixture
        def store(self) -> Iterator[Store]: ...

Every test works in a repository of its own, with a handful of objects, so the suite can run against
a server that others use.
"""

# ruff: noqa: PLR2004, S101 - tests: names are statements, assertions compare with numbers

from __future__ import annotations

import hashlib
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from perago.errors import (
    BranchExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StoreRefusedError,
    UnsupportedFileError,
    WorkspaceChangedError,
)
from perago.model.commit import DifferenceKind
from perago.model.workspace import Download, Signature, Upload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.model.commit import Commit
    from perago.model.progress import Transfer
    from perago.ports.store import Store


# --- What the suites need of a store, whichever it is: a repository to fill and to look into ---


class StoreBench:
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


NOWHERE = "0" * 64


class StoreConformance:
    """The port's docstrings, sentence by sentence."""

    atomic: ClassVar[bool] = True

    @pytest.fixture
    def bench(self, store: Store, tmp_path: Path) -> StoreBench:
        directory = tmp_path / "files"
        directory.mkdir()
        return StoreBench(store, directory)

    # --- repositories and history -------------------------------------------------------------

    def test_a_new_repository_has_one_empty_root_commit_on_its_default_branch(
        self, bench: StoreBench
    ) -> None:
        assert bench.root.parents == ()
        assert bench.head == bench.root
        assert bench.keys("main") == []
        assert bench.repository in bench.store.repositories()

    def test_the_default_branch_may_have_another_name(self, store: Store) -> None:
        repository = f"conformance-{uuid.uuid4().hex[:16]}"
        root = store.create_repository(repository, default_branch="trunk")
        assert [branch.name for branch in store.branches(repository)] == ["trunk"]
        assert store.head(repository, "trunk") == root

    def test_a_new_branch_starts_empty_or_from_a_branch_that_exists(
        self, bench: StoreBench
    ) -> None:
        source = bench.store.new_branch_source(bench.repository)
        assert source in (None, *(branch.name for branch in bench.store.branches(bench.repository)))

    def test_a_repository_is_created_once(self, bench: StoreBench) -> None:
        with pytest.raises(RepositoryExistsError, match=bench.repository):
            bench.store.create_repository(bench.repository)

    def test_an_unknown_repository_is_named_whatever_is_asked_of_it(self, store: Store) -> None:
        unknown = f"unknown-{uuid.uuid4().hex[:16]}"
        for ask in (
            lambda: store.get_commit(unknown, "main"),
            lambda: store.head(unknown, "main"),
            lambda: list(store.branches(unknown)),
            lambda: store.new_branch_source(unknown),
            lambda: list(store.list_objects(unknown, "main")),
            lambda: store.create_branch(unknown, "b", "main"),
        ):
            with pytest.raises(RepositoryNotFoundError, match=unknown):
                ask()

    def test_a_commit_is_found_by_its_id_and_by_its_branch(self, bench: StoreBench) -> None:
        commit = bench.commit("main", {"a": b"1"})
        assert bench.store.get_commit(bench.repository, commit.id) == commit
        assert bench.store.get_commit(bench.repository, "main") == commit

    @pytest.mark.parametrize("ref", [NOWHERE, "no-such-branch"])
    def test_a_ref_that_is_neither_commit_nor_branch_is_refused_by_name(
        self, bench: StoreBench, ref: str
    ) -> None:
        with pytest.raises(CommitNotFoundError, match=ref):
            bench.store.get_commit(bench.repository, ref)
        with pytest.raises(CommitNotFoundError, match=ref):
            list(bench.store.list_objects(bench.repository, ref))

    def test_history_goes_from_the_ref_itself_to_the_root(self, bench: StoreBench) -> None:
        first = bench.commit("main", {"a": b"1"})
        second = bench.commit("main", {"a": b"2"})
        ids = [commit.id for commit in bench.store.history(bench.repository, "main")]
        assert ids == [second.id, first.id, bench.root.id]
        limited = bench.store.history(bench.repository, first.id, limit=1)
        assert [commit.id for commit in limited] == [first.id]

    def test_the_store_says_what_it_can_do_atomically(self, bench: StoreBench) -> None:
        says = bench.store.atomicity(bench.repository, bench.root.id)
        assert (says.cas_merge, says.cas_relocate) == (self.atomic, self.atomic)

    # --- branches ------------------------------------------------------------------------------

    def test_a_branch_starts_where_it_was_told_to(self, bench: StoreBench) -> None:
        commit = bench.commit("main", {"a": b"1"})
        bench.store.create_branch(bench.repository, "at-commit", bench.root.id)
        bench.store.create_branch(bench.repository, "at-branch", "main", hidden=True)
        assert bench.store.head(bench.repository, "at-commit") == bench.root
        assert bench.store.head(bench.repository, "at-branch") == commit

    def test_branches_are_listed_by_name_and_prefix_with_hidden_ones(
        self, bench: StoreBench
    ) -> None:
        for name in ("run-2", "run-1", "other"):
            hidden = name == "run-1"
            bench.store.create_branch(bench.repository, name, "main", hidden=hidden)
        assert [b.name for b in bench.store.branches(bench.repository)] == [
            "main",
            "other",
            "run-1",
            "run-2",
        ]
        found = list(bench.store.branches(bench.repository, prefix="run-"))
        assert [branch.name for branch in found] == ["run-1", "run-2"]
        assert all(branch.head == bench.root.id for branch in found)

    def test_of_many_who_create_one_branch_one_succeeds(self, bench: StoreBench) -> None:
        def create(_: int) -> bool:
            try:
                bench.store.create_branch(bench.repository, "contested", "main")
            except BranchExistsError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(create, range(4))) == 1

    def test_a_branch_at_an_unknown_commit_is_not_created(self, bench: StoreBench) -> None:
        with pytest.raises(CommitNotFoundError):
            bench.store.create_branch(bench.repository, "lost", NOWHERE)
        with pytest.raises(BranchNotFoundError, match="lost"):
            bench.store.head(bench.repository, "lost")

    def test_a_deleted_branch_takes_its_uncommitted_objects_along(self, bench: StoreBench) -> None:
        bench.store.create_branch(bench.repository, "work", "main")
        bench.put("work", {"a": b"1"})
        bench.store.delete_branch(bench.repository, "work", timeout=10)
        with pytest.raises(BranchNotFoundError):
            bench.store.delete_branch(bench.repository, "work")
        bench.store.create_branch(bench.repository, "work", "main")
        assert bench.keys("work") == []

    # --- objects -------------------------------------------------------------------------------

    def test_objects_come_back_as_they_went_in(self, bench: StoreBench) -> None:
        files = {
            "empty": b"",
            "dir/grüße 日本.txt": "ünï".encode(),
            "large": os.urandom(3 << 20),
            "with space": b" ",
        }
        commit = bench.commit("main", files)
        assert bench.content(commit.id) == files

    def test_a_download_reports_the_hash_and_the_stat_of_each_file(
        self, bench: StoreBench, tmp_path: Path
    ) -> None:
        commit = bench.commit("main", {"a": b"one", "b": b"two"})
        entries = bench.store.list_objects(bench.repository, commit.id)
        wanted = {entry.key: Download(entry, tmp_path / entry.key) for entry in entries}
        fetched = bench.store.download(bench.repository, commit.id, list(wanted.values()))
        assert {file.key: file.sha256 for file in fetched.files} == {
            "a": hashlib.sha256(b"one").hexdigest(),
            "b": hashlib.sha256(b"two").hexdigest(),
        }
        assert (fetched.moved.objects, fetched.moved.bytes) == (2, 6)
        for file in fetched.files:
            assert file.signature == Signature.of(Path(wanted[file.key].path).stat())

    def test_listings_come_in_code_point_order_and_start_with_the_prefix(
        self, bench: StoreBench
    ) -> None:
        keys = ["B", "a", "a/1", "a/2", "a0", "ab", "é", "日", "😀"]
        commit = bench.commit("main", {key: key.encode() for key in reversed(keys)})
        assert bench.keys(commit.id) == sorted(keys)
        assert bench.keys(commit.id, "a/") == ["a/1", "a/2"]
        assert bench.keys(commit.id, "a") == ["a", "a/1", "a/2", "a0", "ab"]
        assert bench.keys(commit.id, "zz") == []

    def test_an_entry_has_the_size_of_its_bytes_and_equal_bytes_an_equal_checksum(
        self, bench: StoreBench
    ) -> None:
        bench.put("main", {"a": b"same", "b": b"same", "c": b"other bytes"})
        a, b, c = bench.store.list_objects(bench.repository, "main")
        assert (a.size, c.size) == (4, 11)
        assert a.checksum == b.checksum != c.checksum

    def test_a_branch_shows_what_is_uncommitted_and_its_head_does_not(
        self, bench: StoreBench
    ) -> None:
        commit = bench.commit("main", {"a": b"1", "b": b"2", "d": b"4"})
        bench.put("main", {"b": b"new", "c": b"3", "e": b"5"})
        bench.store.delete_objects(bench.repository, "main", ["d"])
        assert bench.content("main") == {"a": b"1", "b": b"new", "c": b"3", "e": b"5"}
        assert bench.keys("main", "c") == ["c"]
        assert bench.content(commit.id) == {"a": b"1", "b": b"2", "d": b"4"}

    def test_an_upload_tells_what_it_moved_of_how_much(self, bench: StoreBench) -> None:
        reported: list[Transfer] = []
        uploads = [bench.upload_of("a", b"12345"), bench.upload_of("b", b"123")]
        transfer = bench.store.upload(bench.repository, "main", uploads, reported.append)
        assert (transfer.objects, transfer.bytes) == (2, 8)
        assert (reported[-1].objects, reported[-1].bytes) == (2, 8)
        assert (reported[-1].total_objects, reported[-1].total_bytes) == (2, 8)

    def test_a_download_tells_how_far_it_is(self, bench: StoreBench, tmp_path: Path) -> None:
        bench.put("main", {"a": b"12345"})
        wanted = [
            Download(entry, tmp_path / entry.key)
            for entry in bench.store.list_objects(bench.repository, "main")
        ]
        reported: list[Transfer] = []
        bench.store.download(bench.repository, "main", wanted, reported.append)
        assert (reported[-1].objects, reported[-1].bytes, reported[-1].total_bytes) == (1, 5, 5)

    def test_a_file_that_changed_after_it_was_checked_is_refused(self, bench: StoreBench) -> None:
        good, bad = bench.upload_of("good", b"1"), bench.upload_of("bad", b"2")
        bad.path.write_bytes(b"something else")
        with pytest.raises(WorkspaceChangedError, match=bad.path.name):
            bench.store.upload(bench.repository, "main", [good, bad])
        with pytest.raises(StoreRefusedError):
            bench.store.commit(bench.repository, "main", message="", metadata={})

    def test_a_file_that_is_gone_is_refused(self, bench: StoreBench) -> None:
        upload = bench.upload_of("a", b"1")
        upload.path.unlink()
        with pytest.raises(WorkspaceChangedError, match=upload.path.name):
            bench.store.upload(bench.repository, "main", [upload])

    def test_a_link_is_refused_even_if_it_leads_to_the_checked_bytes(
        self, bench: StoreBench
    ) -> None:
        upload = bench.upload_of("a", b"1")
        moved = upload.path.rename(upload.path.with_suffix(".moved"))
        upload.path.symlink_to(moved)
        with pytest.raises(UnsupportedFileError, match=upload.path.name):
            bench.store.upload(bench.repository, "main", [upload])

    def test_an_upload_to_an_unknown_branch_is_refused(self, bench: StoreBench) -> None:
        with pytest.raises(BranchNotFoundError, match="nowhere"):
            bench.put("nowhere", {"a": b"1"})

    def test_deleting_what_is_not_there_is_no_error_and_no_change(self, bench: StoreBench) -> None:
        bench.store.delete_objects(bench.repository, "main", ["never", "was"])
        assert bench.store.uncommitted(bench.repository, "main") == []

    def test_uncommitted_names_the_keys_that_differ_from_the_head(self, bench: StoreBench) -> None:
        bench.commit("main", {"a": b"1", "b": b"2", "c": b"3"})
        assert bench.store.uncommitted(bench.repository, "main") == []
        bench.put("main", {"b": b"new", "d": b"4"})
        bench.store.delete_objects(bench.repository, "main", ["c"])
        assert sorted(bench.store.uncommitted(bench.repository, "main")) == ["b", "c", "d"]
        assert len(bench.store.uncommitted(bench.repository, "main", limit=2)) == 2

    # --- differences ---------------------------------------------------------------------------

    def test_a_diff_names_what_was_added_changed_and_removed_in_key_order(
        self, bench: StoreBench
    ) -> None:
        before = bench.commit("main", {"a": b"1", "b": b"2", "x/c": b"3"})
        after = bench.commit("main", {"b": b"new", "d": b"4", "x/e": b"5"}, deletes=["x/c"])
        found = list(bench.store.diff(bench.repository, before.id, after.id))
        assert [(d.key, d.kind) for d in found] == [
            ("b", DifferenceKind.CHANGED),
            ("d", DifferenceKind.ADDED),
            ("x/c", DifferenceKind.REMOVED),
            ("x/e", DifferenceKind.ADDED),
        ]
        below = bench.store.diff(bench.repository, before.id, after.id, prefix="x/")
        assert [d.key for d in below] == ["x/c", "x/e"]

    def test_changed_keys_are_those_of_the_diff(self, bench: StoreBench) -> None:
        before = bench.commit("main", {"a": b"1", "b": b"2", "x/c": b"3"})
        after = bench.commit("main", {"b": b"new", "d": b"4", "x/e": b"5"}, deletes=["x/c"])
        for prefix in ("", "x/"):
            refs = (bench.repository, before.id, after.id)
            differences = bench.store.diff(*refs, prefix=prefix)
            assert list(bench.store.changed_keys(*refs, prefix=prefix)) == [
                (d.key, d.kind) for d in differences
            ]

    def test_a_commit_does_not_differ_from_itself(self, bench: StoreBench) -> None:
        commit = bench.commit("main", {"a": b"1"})
        assert list(bench.store.diff(bench.repository, commit.id, "main")) == []
        assert list(bench.store.changed_keys(bench.repository, commit.id, "main")) == []

    # --- committing ----------------------------------------------------------------------------

    def test_a_commit_has_the_head_as_its_only_parent_and_carries_its_metadata(
        self, bench: StoreBench
    ) -> None:
        bench.put("main", {"a": b"1"})
        metadata = {"perago.execution_id": "x", "note": "ü"}
        commit = bench.store.commit(bench.repository, "main", message="why", metadata=metadata)
        assert commit.is_only_child_of(bench.root.id)
        assert (commit.message, dict(commit.metadata)) == ("why", metadata)
        assert bench.head == commit
        assert bench.store.uncommitted(bench.repository, "main") == []

    def test_there_are_no_empty_commits(self, bench: StoreBench) -> None:
        with pytest.raises(StoreRefusedError):
            bench.store.commit(bench.repository, "main", message="", metadata={})
        assert bench.head == bench.root

    def test_an_object_put_again_with_the_same_bytes_is_nothing_to_commit(
        self, bench: StoreBench
    ) -> None:
        commit = bench.commit("main", {"a": b"1"})
        bench.put("main", {"a": b"1"})
        assert bench.store.uncommitted(bench.repository, "main") == []
        with pytest.raises(StoreRefusedError):
            bench.store.commit(bench.repository, "main", message="", metadata={})
        assert bench.head == commit

    # --- merging -------------------------------------------------------------------------------

    def test_a_merge_is_one_commit_on_the_head_with_the_sources_tree(
        self, bench: StoreBench
    ) -> None:
        start = bench.commit("main", {"a": b"1", "b": b"2"})
        staged = bench.staged({"b": b"new", "c": b"3"}, deletes=["a"])
        published = bench.merge(staged.id)
        assert published.is_only_child_of(start.id)
        assert published.tree == staged.tree
        assert bench.head == published

    def test_what_is_merged_is_the_commit_not_what_its_branch_became(
        self, bench: StoreBench
    ) -> None:
        bench.store.create_branch(bench.repository, "staging", "main")
        staged = bench.commit("staging", {"a": b"1"})
        bench.commit("staging", {"a": b"too late"})
        bench.merge(staged.id)
        assert bench.content("main") == {"a": b"1"}

    def test_without_a_condition_a_merge_lands_on_whatever_the_head_is(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"mine": b"1"})
        other = bench.commit("main", {"theirs": b"2"})
        published = bench.merge(staged.id)
        assert published.is_only_child_of(other.id)
        assert bench.content("main") == {"mine": b"1", "theirs": b"2"}

    def test_a_conflicting_merge_is_refused_and_changes_nothing(self, bench: StoreBench) -> None:
        bench.commit("main", {"a": b"0"})
        staged = bench.staged({"a": b"mine"})
        other = bench.commit("main", {"a": b"theirs"})
        with pytest.raises(StoreRefusedError):
            bench.merge(staged.id)
        assert bench.head == other

    def test_the_same_change_on_both_sides_is_no_conflict(self, bench: StoreBench) -> None:
        staged = bench.staged({"a": b"same", "b": b"1"})
        bench.commit("main", {"a": b"same"})
        bench.merge(staged.id)
        assert bench.content("main") == {"a": b"same", "b": b"1"}

    def test_merging_a_merged_source_again_adds_an_empty_commit(self, bench: StoreBench) -> None:
        staged = bench.staged({"a": b"1"})
        first = bench.merge(staged.id)
        second = bench.merge(staged.id)
        assert second.is_only_child_of(first.id)
        assert second.tree == first.tree

    def test_a_merge_onto_uncommitted_objects_is_refused(self, bench: StoreBench) -> None:
        staged = bench.staged({"a": b"1"})
        bench.put("main", {"dirt": b"?"})
        with pytest.raises(StoreRefusedError):
            bench.merge(staged.id)
        assert bench.head == bench.root

    def test_a_merge_of_an_unknown_commit_or_onto_an_unknown_branch_is_refused(
        self, bench: StoreBench
    ) -> None:
        with pytest.raises(CommitNotFoundError):
            bench.merge(NOWHERE)
        with pytest.raises(BranchNotFoundError):
            bench.store.merge(
                bench.repository, bench.root.id, "gone", expected_head=None, message="", metadata={}
            )

    # --- relocating ----------------------------------------------------------------------------

    def test_a_relocated_branch_has_the_history_of_its_new_head_only(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"a": b"1"})
        bench.commit("main", {"abandoned": b"2"})
        bench.relocate(staged.id)
        ids = [commit.id for commit in bench.store.history(bench.repository, "main")]
        assert ids == [staged.id, bench.root.id]
        assert bench.content("main") == {"a": b"1"}

    def test_uncommitted_objects_stay_on_top_of_a_relocated_branch(self, bench: StoreBench) -> None:
        staged = bench.staged({"a": b"1"})
        bench.put("main", {"dirt": b"?"})
        bench.relocate(staged.id)
        assert bench.keys("main") == ["a", "dirt"]
        assert bench.store.uncommitted(bench.repository, "main") == ["dirt"]

    def test_a_relocation_to_an_unknown_commit_or_of_an_unknown_branch_is_refused(
        self, bench: StoreBench
    ) -> None:
        with pytest.raises(CommitNotFoundError):
            bench.relocate(NOWHERE)
        with pytest.raises(BranchNotFoundError):
            bench.store.relocate(bench.repository, "gone", bench.root.id, expected_head=None)
        assert bench.head == bench.root
