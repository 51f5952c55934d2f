"""Keys that can't be files, exactly, are refused; all others come back under their own names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.errors import UnsafeKeyError
from perago.model.workspace import MARKER_NAME, key_prefix, problem_with, workspace_paths


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "empty below the prefix"),
        ("../x", "'..' segment"),
        ("a/../x", "'..' segment"),
        ("a/..", "'..' segment"),
        ("./x", "'.' segment"),
        ("a/./x", "'.' segment"),
        ("/x", "starts with '/'"),
        ("/etc/passwd", "starts with '/'"),
        ("a//b", "empty segment"),
        ("a/", "ends with '/'"),
        ("a/b//", "ends with '/'"),
        ("nul\0byte", "control character"),
        ("new\nline", "control character"),
        ("bell\x07", "control character"),
        ("delete\x7f", "control character"),
        ("c1\x85", "control character"),
        ("half \ud800", "surrogate"),
        ("caf\udce9", "surrogate"),
        ("x" * 256, "longer than 255 bytes"),
        ("歌" * 86, "longer than 255 bytes"),
        ("d/" * 1500 + "x", "longer than 3000 bytes"),
        (MARKER_NAME, "reserved"),
        (f"deep/{MARKER_NAME}", "reserved"),
        (f"{MARKER_NAME}/below", "reserved"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_hostile_key_is_refused_by_name_with_a_way_out(key, problem):
    with pytest.raises(UnsafeKeyError) as refused:
        workspace_paths([key], "/")
    assert problem in refused.value.message
    assert repr(key) in refused.value.message
    assert "rename or remove that object" in refused.value.fix


@pytest.mark.parametrize("key", ["songs//x", "songs/", "songs/../x", "songs//"])
def test_below_a_prefix_the_same_rules_hold(key):
    with pytest.raises(UnsafeKeyError):
        workspace_paths([key], "songs")


@pytest.mark.parametrize(
    "key",
    ["a", "...", "..a", "a..", " ", "~", "a b", "back\\slash", "-rf", "*", "歌/曲", "x" * 255],
)
def test_odd_but_possible_names_are_kept(key):
    assert workspace_paths([key], "/") == {key: key}


@pytest.mark.parametrize(
    "keys", [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a"], ["a/b", "a/b/c/d"], ["x", "a/b", "a/b/c"]]
)
def test_a_file_can_not_be_a_directory_too(keys):
    with pytest.raises(UnsafeKeyError, match="needs it as a directory"):
        workspace_paths(keys, "/")


def test_names_that_only_begin_alike_are_no_conflict():
    keys = ["a", "a.b", "ab/c", "a-/c"]
    assert list(workspace_paths(keys, "/")) == keys


CASE_COLLISIONS = [["Name", "name"], ["A/x", "a/y"], ["A", "a/b"], ["straße", "STRASSE"]]


@pytest.mark.parametrize("keys", [*CASE_COLLISIONS, ["e\u0301", "\u00e9"]])
def test_names_that_fold_together_are_refused_where_the_filesystem_folds(keys):
    with pytest.raises(UnsafeKeyError, match="can't tell it from"):
        workspace_paths(keys, "/", folds_case=True)


@pytest.mark.parametrize("keys", CASE_COLLISIONS)
def test_and_kept_where_it_does_not(keys):
    assert list(workspace_paths(keys, "/", folds_case=False)) == keys


def test_files_of_one_directory_are_no_collision_where_the_filesystem_folds():
    assert list(workspace_paths(["A/x", "A/y"], "/", folds_case=True)) == ["A/x", "A/y"]


def test_the_repositorys_actions_are_left_out_of_the_root_workspace_only():
    assert workspace_paths(["_lakefs_actions/f.yaml", "a"], "/") == {"a": "a"}
    below = "songs/_lakefs_actions/f.yaml"
    assert workspace_paths([below], "songs") == {below: "_lakefs_actions/f.yaml"}


@pytest.mark.parametrize(
    ("prefix", "start"),
    [("/", ""), ("", ""), ("songs", "songs/"), ("/songs/", "songs/"), ("a/b", "a/b/")],
)
def test_a_prefix_stands_for_a_directory(prefix, start):
    assert key_prefix(prefix) == start


NASTY = st.sampled_from("./\\Aaé\u0301\0\n~ ")
SEGMENTS = st.text(st.one_of(NASTY, st.characters(codec="utf-8")), max_size=12)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


def is_accepted(keys):
    try:
        workspace_paths(keys, "/")
    except UnsafeKeyError:
        return False
    return True


def largest_accepted(keys):
    """As many of the keys as are accepted together, taken one by one."""
    taken = []
    for key in keys:
        if problem_with(key) is None and is_accepted([*taken, key]):
            taken.append(key)
    return taken


@settings(max_examples=60, deadline=None)
@given(st.sets(KEYS, max_size=8).map(sorted).map(largest_accepted))
def test_any_accepted_keys_are_really_files_that_read_back_under_their_names(keys):
    paths = workspace_paths(keys, "/")
    with tempfile.TemporaryDirectory() as root:
        for key, path in paths.items():
            file = Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as new:
                new.write(key)
        found = {
            path.relative_to(root).as_posix(): path.read_bytes().decode()
            for path in Path(root).rglob("*")
            if path.is_file()
        }
    assert found == {key: key for key in keys}
