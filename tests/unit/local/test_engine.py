"""What a task did to its directory is found exactly, at the cost of what it touched."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from perago.errors import UnsafeKeyError


def changes_of(workspace):
    found = workspace.scan()
    return sorted(upload.key for upload in found.uploads), list(found.deletes)


def rewrite(path, data):
    """Write other bytes and put the old times back."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def opened_files():
    """Paths that are opened for reading while the returned function's block runs."""
    seen, watching = [], []

    def hook(event, args):
        if watching and event == "open" and isinstance(args[0], (str, os.PathLike)):
            seen.append(os.fspath(args[0]))

    sys.addaudithook(hook)  # can't be removed again, so it is made deaf at the end
    watching.append(True)
    yield seen
    watching.clear()


def test_a_fresh_workspace_holds_the_objects_and_shows_no_change(fetch):
    workspace = fetch({"a": "1", "deep/er/b": "2", "empty": b"", "ünï/çødé 歌": "3"})
    assert (workspace.argument / "deep/er/b").read_text() == "2"
    assert (workspace.argument / "ünï/çødé 歌").read_text() == "3"
    assert workspace.files == ["a", "deep/er/b", "empty", "ünï/çødé 歌"]
    assert (workspace.fetched.objects, workspace.fetched.bytes) == (4, 3)
    assert not workspace.scan()


def test_new_changed_and_deleted_files_are_told_apart(fetch):
    workspace = fetch({"keep": "1", "edit": "2", "drop": "3"})
    (workspace.argument / "edit").write_text("22")
    (workspace.argument / "drop").unlink()
    (workspace.argument / "sub").mkdir()
    (workspace.argument / "sub/new").touch()
    assert changes_of(workspace) == (["edit", "sub/new"], ["drop"])
    assert workspace.files == ["edit", "keep", "sub/new"]


def test_a_file_rewritten_with_the_same_bytes_is_no_change(fetch):
    workspace = fetch({"a": "same", "b": "same"})
    (workspace.argument / "a").write_text("same")
    replacement = workspace.argument / "b.tmp"
    replacement.write_text("same")
    replacement.rename(workspace.argument / "b")
    assert not workspace.scan()


def test_only_files_that_leave_a_doubt_are_read(fetch, opened_files):
    workspace = fetch({f"f{n:02}": "same" for n in range(20)})
    os.utime(workspace.argument / "f07")
    (workspace.argument / "f08").write_text("longer than before")
    (workspace.argument / "brand new").write_text("x")
    opened_files.clear()
    workspace.scan()
    read = [path for path in opened_files if path.startswith(str(workspace.argument))]
    assert read == [str(workspace.argument / "f07")]


def test_a_rewrite_of_the_same_size_with_its_times_put_back_is_seen(fetch):
    workspace = fetch({"a": "before"})
    rewrite(workspace.argument / "a", b"after!")
    assert changes_of(workspace) == (["a"], [])


def test_a_write_right_after_the_fetch_is_seen_every_time(fetch):
    for round_ in range(40):
        workspace = fetch({"a": f"{round_:04}"})
        rewrite(workspace.argument / "a", b"xxxx")
        assert changes_of(workspace) == (["a"], []), f"round {round_}"


def test_the_filesystems_clock_has_moved_on_before_the_body_gets_its_files(fetch):
    for round_ in range(10):
        workspace = fetch({"a": f"{round_:04}"})
        first_write = workspace.argument / "first write"
        first_write.touch()
        assert first_write.stat().st_ctime_ns > workspace.baseline["a"].signature.ctime_ns


def test_a_renamed_file_is_one_deleted_and_one_new(fetch):
    workspace = fetch({"old": "x"})
    (workspace.argument / "old").rename(workspace.argument / "new")
    assert changes_of(workspace) == (["new"], ["old"])


def test_two_files_that_swap_names_are_both_seen(fetch):
    workspace = fetch({"a": "one", "b": "two"})
    root = workspace.argument
    (root / "a").rename(root / "c")
    (root / "b").rename(root / "a")
    (root / "c").rename(root / "b")
    assert changes_of(workspace) == (["a", "b"], [])


def test_a_file_may_become_a_directory_and_the_reverse(fetch):
    workspace = fetch({"file": "x", "folder/one": "1", "folder/two": "2"})
    (workspace.argument / "file").unlink()
    (workspace.argument / "file").mkdir()
    (workspace.argument / "file/inside").write_text("y")
    shutil.rmtree(workspace.argument / "folder")
    (workspace.argument / "folder").write_text("z")
    assert changes_of(workspace) == (
        ["file/inside", "folder"],
        ["file", "folder/one", "folder/two"],
    )


def test_empty_directories_are_no_part_of_a_workspace(fetch):
    workspace = fetch({"a/b": "x"})
    (workspace.argument / "void/of/files").mkdir(parents=True)
    (workspace.argument / "a/b").unlink()
    assert changes_of(workspace) == ([], ["a/b"])
    assert workspace.files == []


def test_an_executable_bit_is_no_change(fetch):
    workspace = fetch({"run": "#!/bin/sh"})
    (workspace.argument / "run").chmod(0o755)
    assert not workspace.scan()


def test_an_executable_bit_on_a_changed_file_is_noted_as_not_kept(fetch):
    workspace = fetch({"run": "#!/bin/sh"})
    (workspace.argument / "new").write_text("#!/bin/sh")
    (workspace.argument / "new").chmod(0o755)
    workspace.scan()
    assert list(workspace.notes) == ["executable bits are not kept: new"]


def test_keys_carry_the_prefix_and_paths_do_not(fetch):
    workspace = fetch({"songs/a": "1", "other": "2"}, prefix="songs")
    assert workspace.files == ["a"]
    (workspace.argument / "b").write_text("3")
    (workspace.argument / "a").unlink()
    assert changes_of(workspace) == (["songs/b"], ["songs/a"])


def test_a_scan_can_be_repeated_and_forgets_what_was_undone(fetch):
    workspace = fetch({"a": "1"})
    (workspace.argument / "b").write_text("2")
    assert workspace.scan()
    (workspace.argument / "b").unlink()
    assert not workspace.scan()


def test_the_stores_bytes_can_not_be_changed_through_the_workspace(bench, fetch):
    workspace = fetch({"a": "original"})
    path = workspace.argument / "a"
    assert path.stat().st_nlink == 1
    with path.open("r+b") as file:
        file.write(b"vandal")
    assert bench.read()["a"] == b"original"
    assert bench.store.verify().clean


def test_an_unsafe_key_is_refused_before_anything_is_written(bench, fetch):
    with pytest.raises(UnsafeKeyError, match=r"'\.\./escape'"):
        fetch({"fine": "1", "../escape": "2"})
    assert [path for path in bench.root.rglob("*") if path.name in ("fine", "escape")] == []


def test_the_repositorys_actions_are_not_projected(fetch):
    workspace = fetch({"_lakefs_actions/fence.yaml": "x", "a": "1"})
    assert workspace.files == ["a"]
    assert not workspace.scan()


def test_below_a_prefix_that_name_is_a_name_like_any_other(fetch):
    workspace = fetch({"songs/_lakefs_actions/x": "1"}, prefix="songs")
    assert workspace.files == ["_lakefs_actions/x"]
