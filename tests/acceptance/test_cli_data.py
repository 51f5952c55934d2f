"""Files in, files out, and what happened to them between."""

import os

import pytest

from perago.model.workspace import WorkspaceRef


@pytest.fixture
def imported(perago):
    """The id of a first commit with two files, in repository ``songs``."""
    return perago("import", "data", "-r", "songs", "--json").json["commit"]


def _files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


# --- import -------------------------------------------------------------------------------------


def test_import_makes_the_repository_and_commits_the_directory_once(perago, project, store):
    document = perago("import", "data", "--repository", "songs", "--json").json
    assert document["created"] == "repository"
    assert (document["added"], document["changed"], document["removed"]) == (2, 0, 0)
    head = store.head("songs", "main")
    assert head.id == document["commit"]
    assert head.parents == (document["parent"],)
    assert store.read_bytes("songs", "main", "raw/a.txt") == b"one\ntwo\n"


def test_import_makes_a_missing_branch_that_starts_empty(perago, imported, store):
    document = perago("import", "data/raw", "-r", "songs", "--branch", "trial", "--json").json
    assert document["created"] == "branch"
    assert [entry.key for entry in store.list_objects("songs", "trial")] == ["a.txt", "b.txt"]
    assert store.head("songs", "main").id == imported


def test_importing_the_same_files_again_commits_nothing(perago, imported, store):
    answer = perago("import", "data", "-r", "songs")
    assert answer.code == 0
    assert "nothing changed" in answer.out
    assert store.head("songs", "main").id == imported
    assert perago("import", "data", "-r", "songs", "--json").json["commit"] is None


def test_import_makes_the_branch_equal_to_the_directory(perago, project, imported, store):
    (project / "data" / "raw" / "a.txt").unlink()
    (project / "data" / "raw" / "b.txt").write_text("four\n")
    (project / "data" / "raw" / "c").mkdir()
    (project / "data" / "raw" / "c" / "d.txt").write_text("")
    document = perago("import", "data", "-r", "songs", "--message", "second", "--json").json
    assert (document["added"], document["changed"], document["removed"]) == (1, 1, 1)
    assert store.head("songs", "main").message == "second"
    assert [e.key for e in store.list_objects("songs", "main")] == ["raw/b.txt", "raw/c/d.txt"]


def test_import_below_a_prefix_leaves_the_rest_alone(perago, imported, store):
    assert perago("import", "data/raw", "-r", "songs", "--prefix", "copy").code == 0
    keys = [entry.key for entry in store.list_objects("songs", "main")]
    assert keys == ["copy/a.txt", "copy/b.txt", "raw/a.txt", "raw/b.txt"]


def test_a_file_that_becomes_a_directory_is_imported_as_one(perago, project, imported, store):
    (project / "data" / "raw" / "a.txt").unlink()
    (project / "data" / "raw" / "a.txt").mkdir()
    (project / "data" / "raw" / "a.txt" / "part").write_text("x")
    assert perago("import", "data", "-r", "songs").code == 0
    keys = [entry.key for entry in store.list_objects("songs", "main")]
    assert keys == ["raw/a.txt/part", "raw/b.txt"]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda path: path.symlink_to("a.txt"), "symlink"),
        (os.mkfifo, "pipe"),
        (lambda path: path.with_name(".perago-attempt.json").write_text("{}"), "reserved"),
    ],
)
def test_import_refuses_what_is_no_plain_file_by_name_and_makes_nothing(
    perago, project, store, make, named
):
    make(project / "data" / "raw" / "odd")
    answer = perago("import", "data", "-r", "songs")
    assert answer.code == 1
    assert "raw/" in answer.err
    assert named in answer.err
    assert store.repositories() == []


@pytest.mark.parametrize("prefix", ["../up", "a//b", "_lakefs_actions", "_lakefs_actions/x"])
def test_import_refuses_a_prefix_that_is_no_directory_of_a_repository(perago, prefix):
    answer = perago("import", "data", "-r", "songs", "--prefix", prefix)
    assert answer.code == 2
    assert prefix in answer.err


def test_import_refuses_a_branch_that_an_active_run_writes(
    perago, project, imported, store, start_waiting
):
    workspace = WorkspaceRef(repository="songs", branch="main", ref_type="commit", ref=imported)
    run = start_waiting(workspace=workspace)
    (project / "data" / "new.txt").write_text("new")
    answer = perago("import", "data", "-r", "songs", "--json")
    assert answer.code == 4
    assert answer.error["code"] == "branch_busy"
    assert run in answer.error["message"]
    assert store.head("songs", "main").id == imported


def test_an_import_leaves_no_staging_branch(perago, imported, store):
    assert [branch.name for branch in store.branches("songs")] == ["main"]


# --- export -------------------------------------------------------------------------------------


def test_export_gives_back_the_very_files(perago, project, imported):
    document = perago("export", "main", "out", "--json").json
    assert document["commit"] == imported
    assert (document["files"], document["bytes"]) == (2, 14)
    assert _files(project / "out") == _files(project / "data")


def test_export_takes_a_start_of_a_commit_id_and_a_prefix(perago, project, imported):
    answer = perago("export", imported[:8], "out", "--prefix", "raw")
    assert answer.code == 0
    assert "2 files" in answer.out
    assert sorted(_files(project / "out")) == ["a.txt", "b.txt"]


def test_export_never_writes_over_files(perago, project, imported):
    (project / "out").mkdir()
    (project / "out" / "mine").write_text("keep")
    answer = perago("export", "main", "out")
    assert answer.code == 2
    assert "not an empty directory" in answer.err
    assert _files(project / "out") == {"mine": b"keep"}


@pytest.mark.damages_store
def test_export_of_a_corrupt_object_names_it_and_leaves_nothing(perago, project, imported):
    (damaged,) = [
        path
        for path in (project / ".perago" / "store" / "objects").rglob("*")
        if path.is_file() and path.read_bytes() == b"three\n"
    ]
    damaged.chmod(0o644)
    damaged.write_bytes(b"thrEE\n")
    answer = perago("export", "main", "out", "--json")
    assert answer.code == 5
    assert answer.error["code"] == "corrupt_object"
    assert "raw/b.txt" in answer.error["message"]
    assert not (project / "out").exists()


def test_export_refuses_keys_that_cannot_be_files_before_writing(perago, project, imported, store):
    store.put_bytes("songs", "main", "../escape", b"x")
    store.commit("songs", "main", message="hostile", metadata={})
    answer = perago("export", "main", "out", "--json")
    assert answer.error["code"] == "unsafe_key"
    assert not (project / "out").exists()


# --- history and diff ---------------------------------------------------------------------------


def test_history_lists_commits_newest_first_with_what_they_changed(perago, imported):
    document = perago("history", "--json").json
    assert document["repository"] == "songs"
    first, root = document["commits"]
    assert (first["id"], first["added"], first["task"]) == (imported, 2, None)
    assert (root["parents"], root["added"]) == ([], 0)
    answer = perago("history", "--limit", "1")
    assert imported[:12] in answer.out
    assert "+2 ~0 -0" in answer.out
    assert "Repository created" not in answer.out


def test_history_takes_a_ref(perago, imported):
    root = perago("history", "--json").json["commits"][1]["id"]
    assert [c["id"] for c in perago("history", root[:10], "--json").json["commits"]] == [root]


def test_a_repository_has_to_be_named_where_there_are_several(perago, imported):
    perago("import", "data", "-r", "other")
    answer = perago("history")
    assert answer.code == 2
    assert "other, songs" in answer.err
    assert "--repository" in answer.err
    assert perago("history", "-r", "songs").code == 0


@pytest.mark.parametrize("ref", ["nowhere", "deadbeef", "main~9"])
def test_a_ref_that_is_nothing_is_exit_code_3(perago, imported, ref):
    answer = perago("history", ref)
    assert answer.code == 3
    assert ref in answer.err


def test_diff_names_each_object_with_its_sizes(perago, project, imported):
    (project / "data" / "raw" / "a.txt").write_text("one\n")
    (project / "data" / "new.txt").write_text("new")
    (project / "data" / "raw" / "b.txt").unlink()
    perago("import", "data", "-r", "songs")
    document = perago("diff", imported[:12], "main", "--json").json
    assert document["summary"] == {"added": 1, "changed": 1, "removed": 1}
    assert document["differences"] == [
        {"key": "new.txt", "kind": "added", "bytes_before": None, "bytes_after": 3},
        {"key": "raw/a.txt", "kind": "changed", "bytes_before": 8, "bytes_after": 4},
        {"key": "raw/b.txt", "kind": "removed", "bytes_before": 6, "bytes_after": None},
    ]
    answer = perago("diff", imported, "main", "--prefix", "raw/")
    assert "8 B → 4 B" in answer.out
    assert "0 added, 1 changed, 1 removed" in answer.out
