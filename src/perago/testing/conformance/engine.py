"""What every engine adapter must do, as pytest classes to subclass.

::

    class TestMyEngine(EngineConformance, PathArgument):
        @pytest.fixture
        def engine(self) -> Engine: ...

The suite plays the task's body. Where the body's argument isn't a ``Path``, leave out
``PathArgument`` and override ``write``, ``remove`` and ``read``; where opening moves no bytes, set
``copies = False``. The store is an embedded one unless the fixture ``store`` says otherwise.
"""

# ruff: noqa: S101 - tests: names are statements

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.errors import UnsafeKeyError, UnsupportedFileError
from perago.model.workspace import WorkspaceRef
from perago.testing.conformance.store import StoreBench

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.model.progress import Transfer
    from perago.ports.engine import Engine, OpenWorkspace
    from perago.ports.store import OnTransfer, Store

REFUSALS = (UnsupportedFileError, UnsafeKeyError)


class EngineBench:
    """An engine, a repository of its own, and a fresh directory for each workspace."""

    def __init__(self, engine: Engine, store: Store, root: Path) -> None:
        self.engine = engine
        self.directories: list[Path] = []
        self._root = root
        (root / "outside").mkdir()
        self.repository = StoreBench(store, root / "outside")

    def commit(self, files: Mapping[str, bytes], deletes: Sequence[str] = ()) -> str:
        """Commit on the branch, outside of any attempt; returns the new head's id."""
        return self.repository.commit("main", files, deletes).id

    def open(
        self, ref: str, *, prefix: str = "/", progress: OnTransfer | None = None
    ) -> OpenWorkspace:
        directory = self._root / f"attempt-{len(self.directories)}" / "files"
        directory.mkdir(parents=True)
        self.directories.append(directory)
        workspace = WorkspaceRef(
            repository=self.repository.repository, branch="main", ref_type="commit", ref=ref
        )
        return self.engine.open(self.repository.store, workspace, prefix, directory, progress)

    def staged(self, opened: OpenWorkspace, ref: str) -> dict[str, bytes]:
        """Every object of the commit that the flow would stage from a scan."""
        changes, store, name = opened.scan(), self.repository.store, self.repository.repository
        store.create_branch(name, "staged", ref)
        store.upload(name, "staged", changes.uploads)
        store.delete_objects(name, "staged", changes.deletes)
        commit = store.commit(name, "staged", message="staged", metadata={})
        return self.repository.content(commit.id)

    def state(self) -> tuple[object, ...]:
        """All that a publication would change."""
        store, name = self.repository.store, self.repository.repository
        return [*store.branches(name)], store.uncommitted(name, "main")


def changes_of(opened: OpenWorkspace) -> tuple[list[str], list[str]]:
    """The keys to upload and to delete, as a scan finds them."""
    found = opened.scan()
    return sorted(upload.key for upload in found.uploads), sorted(found.deletes)


def directory_of(opened: OpenWorkspace) -> Path:
    """The argument of an engine whose bodies take a ``Path``."""
    assert isinstance(opened.argument, Path), "override write, remove and read for this engine"
    return opened.argument


class EngineConformance:
    """The port's docstrings, sentence by sentence."""

    copies: ClassVar[bool] = True
    """Whether opening moves the objects; False if the body reads straight from the store."""

    @pytest.fixture
    def engine(self) -> Engine:
        """Give the adapter under test: to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = EmbeddedStore(tmp_path / "store", durable=False)
        yield store
        store.close()

    @pytest.fixture
    def bench(self, engine: Engine, store: Store, tmp_path: Path) -> EngineBench:
        return EngineBench(engine, store, tmp_path)

    # --- what a body does with its argument ------------------------------------------------------

    def write(self, opened: OpenWorkspace, path: str, data: bytes) -> None:
        """Have the body leave these bytes at ``path``, whatever was there."""
        target = directory_of(opened) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def remove(self, opened: OpenWorkspace, path: str) -> None:
        """Have the body remove the file at ``path``."""
        (directory_of(opened) / path).unlink()

    def read(self, opened: OpenWorkspace, path: str) -> bytes:
        """What the body finds at ``path``."""
        return (directory_of(opened) / path).read_bytes()

    # --- open ------------------------------------------------------------------------------------

    def test_the_body_finds_the_objects_of_the_input_commit(self, bench: EngineBench) -> None:
        objects = {"a": b"1", "deep/er/b": b"22", "empty": b"", "ünï/çødé 歌": b"3"}
        opened = bench.open(bench.commit(objects))
        assert sorted(opened.files) == sorted(objects)
        assert {path: self.read(opened, path) for path in opened.files} == objects

    def test_it_is_the_input_commit_not_what_the_branch_has_become(
        self, bench: EngineBench
    ) -> None:
        ref = bench.commit({"a": b"then", "gone later": b""})
        bench.commit({"a": b"now", "new": b""}, deletes=["gone later"])
        bench.repository.put("main", {"a": b"uncommitted"})
        opened = bench.open(ref)
        assert sorted(opened.files) == ["a", "gone later"]
        assert self.read(opened, "a") == b"then"

    @pytest.mark.parametrize("prefix", ["songs", "songs/", "/songs"])
    def test_a_prefix_shows_what_is_below_it_under_relative_paths(
        self, bench: EngineBench, prefix: str
    ) -> None:
        ref = bench.commit({"songs/raw/a": b"1", "songs2/b": b"2", "songs.txt": b"3", "c": b"4"})
        opened = bench.open(ref, prefix=prefix)
        assert list(opened.files) == ["raw/a"]
        assert self.read(opened, "raw/a") == b"1"

    def test_a_workspace_may_be_empty(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"other/a": b"1"}), prefix="songs")
        assert list(opened.files) == []
        assert not opened.scan()

    @pytest.mark.parametrize(
        "key",
        [
            "../escape",
            "a/../../escape",
            "/absolute",
            "empty//segment",
            "folder/",
            "./here",
            "bell\x07",
            "fine/below",  # and "fine" is a file
            "x" * 300,
            ".perago-attempt.json",
            "deep/.perago-attempt.json",
        ],
    )
    @pytest.mark.parametrize("prefix", ["", "songs/"])
    def test_a_key_that_can_not_be_a_file_is_refused_before_anything_is_written(
        self, bench: EngineBench, prefix: str, key: str
    ) -> None:
        ref = bench.commit({f"{prefix}fine": b"1", f"{prefix}{key}": b"2"})
        with pytest.raises(UnsafeKeyError) as refused:
            bench.open(ref, prefix=prefix or "/")
        assert repr(prefix + key) in refused.value.message
        assert [path.name for path in bench.directories[0].parent.rglob("*")] == ["files"]

    def test_an_unsafe_key_elsewhere_is_none_of_its_business(self, bench: EngineBench) -> None:
        ref = bench.commit({"../escape": b"1", "songs/a": b"2"})
        assert list(bench.open(ref, prefix="songs").files) == ["a"]

    def test_the_repositorys_actions_are_not_projected_and_not_missed(
        self, bench: EngineBench
    ) -> None:
        opened = bench.open(bench.commit({"_lakefs_actions/fence.yaml": b"x", "a": b"1"}))
        assert list(opened.files) == ["a"]
        assert not opened.scan()

    def test_below_a_prefix_that_name_is_a_name_like_any_other(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"songs/_lakefs_actions/x": b"1"}), prefix="songs")
        assert list(opened.files) == ["_lakefs_actions/x"]
        self.write(opened, "_lakefs_actions/x", b"22")
        assert changes_of(opened) == (["songs/_lakefs_actions/x"], [])

    def test_fetched_counts_what_was_moved(self, bench: EngineBench) -> None:
        ref = bench.commit({"songs/a": b"1", "songs/b": b"22", "songs/c": b"", "other": b"4444"})
        reported: list[Transfer] = []
        opened = bench.open(ref, prefix="songs", progress=reported.append)
        moved = (3, 3) if self.copies else (0, 0)
        assert (opened.fetched.objects, opened.fetched.bytes) == moved
        assert [(last.objects, last.bytes) for last in reported[-1:]] == (
            [moved] if self.copies else []
        )

    # --- scan ------------------------------------------------------------------------------------

    def test_a_body_that_touches_nothing_changes_nothing(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1", "empty": b""}))
        self.read(opened, "a")
        assert not opened.scan()

    def test_added_changed_and_removed_files_are_told_apart(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"keep": b"1", "edit": b"2", "drop": b"3"}))
        self.write(opened, "edit", b"longer")
        self.remove(opened, "drop")
        self.write(opened, "sub/new", b"")
        assert changes_of(opened) == (["edit", "sub/new"], ["drop"])

    def test_other_bytes_of_the_same_size_are_a_change(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"before"}))
        self.write(opened, "a", b"after!")
        assert changes_of(opened) == (["a"], [])

    def test_the_same_bytes_written_again_are_no_change(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"same", "b": b"same"}))
        self.write(opened, "a", b"same")
        self.remove(opened, "b")
        self.write(opened, "b", b"same")
        assert not opened.scan()

    def test_a_renamed_file_is_one_removed_and_one_added(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"old": b"x"}))
        self.write(opened, "new", self.read(opened, "old"))
        self.remove(opened, "old")
        assert changes_of(opened) == (["new"], ["old"])

    def test_keys_carry_the_prefix(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"songs/a": b"1", "other": b"2"}), prefix="songs")
        self.write(opened, "b", b"3")
        self.remove(opened, "a")
        assert changes_of(opened) == (["songs/b"], ["songs/a"])

    def test_what_is_staged_from_a_scan_is_what_the_body_left(self, bench: EngineBench) -> None:
        ref = bench.commit({"songs/keep": b"1", "songs/edit": b"2", "songs/drop": b"", "o": b"4"})
        opened = bench.open(ref, prefix="songs")
        self.write(opened, "edit", b"two")
        self.write(opened, "deep/new 歌", b"new")
        self.remove(opened, "drop")
        assert bench.staged(opened, ref) == {
            "o": b"4",
            "songs/keep": b"1",
            "songs/edit": b"two",
            "songs/deep/new 歌": b"new",
        }

    def test_a_scan_can_be_repeated_and_forgets_what_was_undone(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        self.write(opened, "b", b"2")
        assert changes_of(opened) == changes_of(opened) == (["b"], [])
        self.remove(opened, "b")
        assert not opened.scan()

    def test_files_are_as_last_looked_at(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1", "b": b"2"}))
        self.write(opened, "c", b"3")
        self.remove(opened, "a")
        assert sorted(opened.files) == ["a", "b"]
        opened.scan()
        assert sorted(opened.files) == ["b", "c"]

    def test_there_is_nothing_to_note_about_plain_files(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        assert not opened.notes
        self.write(opened, "b", b"2")
        opened.scan()
        assert not opened.notes

    @pytest.mark.parametrize(
        "path", [".perago-attempt.json", "sub/.perago-attempt.json", "line\nbreak"]
    )
    def test_a_name_that_can_not_be_stored_is_refused_until_it_is_gone(
        self, bench: EngineBench, path: str
    ) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        self.write(opened, path, b"{}")
        with pytest.raises(REFUSALS) as refused:
            opened.scan()
        assert repr(path) in refused.value.message
        self.remove(opened, path)
        assert not opened.scan()

    def test_a_body_can_not_add_to_the_repositorys_actions(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        self.write(opened, "_lakefs_actions/mine.yaml", b"x")
        with pytest.raises(REFUSALS, match="_lakefs_actions"):
            opened.scan()

    # --- isolation -------------------------------------------------------------------------------

    def test_the_commit_stays_what_it_was_whatever_the_body_does(self, bench: EngineBench) -> None:
        ref = bench.commit({"a": b"original", "b": b"original"})
        opened = bench.open(ref)
        self.write(opened, "a", b"vandal")
        self.remove(opened, "b")
        opened.scan()
        assert bench.repository.content(ref) == {"a": b"original", "b": b"original"}

    def test_two_workspaces_of_one_commit_do_not_see_each_other(self, bench: EngineBench) -> None:
        ref = bench.commit({"a": b"1", "b": b"2"})
        one, other = bench.open(ref), bench.open(ref)
        self.write(one, "a", b"changed")
        self.write(one, "new", b"")
        self.remove(other, "b")
        assert self.read(other, "a") == b"1"
        assert self.read(one, "b") == b"2"
        assert changes_of(one) == (["a", "new"], [])
        assert changes_of(other) == ([], ["b"])

    def test_it_neither_stages_nor_publishes(self, bench: EngineBench) -> None:
        ref = bench.commit({"a": b"1"})
        before = bench.state()
        opened = bench.open(ref)
        self.write(opened, "a", b"2")
        opened.scan()
        assert bench.state() == before


class PathArgument:
    """What holds besides if the body gets a directory, where it can do what files allow."""

    @pytest.fixture
    def read_files(self) -> Iterator[list[Path]]:
        """Every file that this process opens from now on."""
        seen: list[Path] = []
        listening = True

        def record_write(event: str, details: tuple[object, ...]) -> None:
            if listening and event == "open" and isinstance(details[0], (str, os.PathLike)):
                seen.append(Path(details[0]))

        sys.addaudithook(record_write)  # can't be removed, so it is switched off at the end
        yield seen
        listening = False

    def test_the_argument_is_the_directory_it_was_given(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"sub/a": b"1"}))
        assert opened.argument == bench.directories[0]

    def test_only_files_that_leave_a_doubt_are_read(
        self, bench: EngineBench, read_files: list[Path]
    ) -> None:
        opened = bench.open(bench.commit({"untouched": b"1", "rewritten": b"2", "longer": b"3"}))
        root = directory_of(opened)
        (root / "rewritten").write_bytes(b"2")
        (root / "longer").write_bytes(b"333")
        (root / "new").write_bytes(b"4")
        read_files.clear()
        opened.scan()
        assert [path for path in read_files if root in path.parents] == [root / "rewritten"]

    def test_a_rewrite_that_puts_the_times_back_is_seen(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"before"}))
        path = directory_of(opened) / "a"
        times = path.stat()
        path.write_bytes(b"after!")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert changes_of(opened) == (["a"], [])

    def test_bytes_changed_in_place_stay_in_the_workspace(self, bench: EngineBench) -> None:
        ref = bench.commit({"a": b"original"})
        opened, other = bench.open(ref), bench.open(ref)
        with (directory_of(opened) / "a").open("r+b") as file:
            file.write(b"vandal")
        assert bench.repository.content(ref) == {"a": b"original"}
        assert (directory_of(other) / "a").read_bytes() == b"original"

    def test_a_file_may_become_a_directory_and_the_reverse(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"file": b"x", "folder/one": b"1", "folder/two": b"2"}))
        root = directory_of(opened)
        (root / "file").unlink()
        (root / "file").mkdir()
        (root / "file" / "inside").write_bytes(b"y")
        shutil.rmtree(root / "folder")
        (root / "folder").write_bytes(b"z")
        assert changes_of(opened) == (
            ["file/inside", "folder"],
            ["file", "folder/one", "folder/two"],
        )

    def test_empty_directories_are_no_part_of_a_workspace(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        (directory_of(opened) / "void" / "of files").mkdir(parents=True)
        assert not opened.scan()
        assert list(opened.files) == ["a"]

    def test_what_is_no_regular_file_is_refused_by_name(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"sub/a": b"1"}))
        root = directory_of(opened)
        (root / "sub" / "link").symlink_to("a")
        with pytest.raises(UnsupportedFileError, match=r"'sub/link'.*symlink"):
            opened.scan()
        (root / "sub" / "link").unlink()
        os.mkfifo(root / "pipe")
        with pytest.raises(UnsupportedFileError, match=r"'pipe'.*pipe"):
            opened.scan()

    def test_what_a_scan_leaves_out_is_noted_until_the_next_one(self, bench: EngineBench) -> None:
        opened = bench.open(bench.commit({"a": b"1"}))
        script = directory_of(opened) / "run.sh"
        script.write_bytes(b"#!/bin/sh\n")
        script.chmod(0o755)
        opened.scan()
        assert any("run.sh" in note for note in opened.notes)
        script.chmod(0o644)
        opened.scan()
        assert not opened.notes
