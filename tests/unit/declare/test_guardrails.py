"""Guardrails and prefixes: what they match, and which ones are refused."""

import re
import time
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago import (
    TaskDefinitionError,
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
)
from perago.declare.guardrails import check, violations
from perago.errors import PostGuardrailViolation, PreGuardrailViolation


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("raw/*.jsonl", "raw/a.jsonl", True),
        ("raw/*.jsonl", "raw/deep/a.jsonl", False),
        ("raw/*.jsonl", "raw/.jsonl", True),
        ("raw/*.jsonl", "raw/ajsonl", False),
        ("ra?/x", "raw/x", True),
        ("ra?/x", "ra/x", False),
        ("a?b", "a/b", False),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "a/bx", False),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("part-[0-9]", "part-7", True),
        ("part-[0-9]", "part-x", False),
        ("part-[!0-9]", "part-x", True),
        ("part-[!0-9]", "part-7", False),
        ("a[!b]c", "a/c", False),
        ("a[]x]c", "a]c", True),
        ("a[[]c", "a[c", True),
        ("a[^b]c", "a^c", True),
        ("a.c", "abc", False),
        ("Müsik/*", "Müsik/x", True),
        ("a*", "a\nb", True),
    ],
)
def test_a_glob_matches_segment_by_segment(pattern, path, matches):
    assert (violations([require_glob(pattern)], [path]) == []) is matches
    assert (violations([forbid_glob(pattern)], [path]) != []) is matches


name = st.text(st.sampled_from("ab[]*?!^-.& é"), min_size=1, max_size=6).filter(
    lambda text: text not in {".", ".."}
)


@given(st.lists(name, min_size=1, max_size=3))
def test_require_file_takes_every_character_of_a_name_literally(segments):
    path = "/".join(segments)
    assert violations([require_file(path)], [path]) == []
    assert violations([require_file(path)], [f"{path}x", f"x/{path}"]) != []


def test_a_directory_is_there_when_a_file_lies_below_it():
    assert violations([require_dir("raw")], ["raw/2024/a"]) == []
    assert violations([require_dir("raw")], ["raw", "rawer/a"]) != []


def test_counts_are_bounded_on_both_sides():
    guardrail = require_glob("*.csv", min_count=2, max_count=3)
    counts = [bool(violations([guardrail], [f"{n}.csv" for n in range(k)])) for k in range(6)]
    assert counts == [True, True, False, False, True, True]


def test_a_violation_names_every_guardrail_with_counts_and_what_is_there_instead():
    paths = ["raw/a.json", "raw/b.json", "raw/c.json", "raw/d.json", "tmp/x"]
    with pytest.raises(PreGuardrailViolation) as violated:
        check(
            [require_glob("raw/*.jsonl"), forbid_glob("tmp/**"), require_dir("raw")], paths, "pre"
        )
    message = violated.value.message
    assert "2 pre guardrail(s) violated" in message
    assert "require_glob('raw/*.jsonl'): 0 files found, at least 1 needed" in message
    assert "raw/ has raw/a.json, raw/b.json, raw/c.json and 1 more" in message
    assert "forbid_glob('tmp/**'): 1 file found, none allowed (tmp/x)" in message
    assert violated.value.terminal


def test_a_violation_after_the_task_is_an_ordinary_failure():
    with pytest.raises(PostGuardrailViolation, match="the workspace is empty") as violated:
        check([require_file("clean.csv")], [], "post")
    assert not violated.value.terminal


def test_a_hundred_thousand_paths_take_no_noticeable_time():
    paths = [f"raw/year={n % 50}/part-{n:06}.jsonl" for n in range(100_000)]
    guardrails = [require_glob("raw/**/*.jsonl"), forbid_glob("**/_SUCCESS"), require_dir("raw")]
    started = time.perf_counter()
    assert violations(guardrails, paths) == []
    assert time.perf_counter() - started < 3


@pytest.mark.parametrize(
    ("declare", "message", "fix"),
    [
        (lambda: require_file("/raw/a"), "starts with '/'", "'raw/a'"),
        (lambda: require_file("../a"), "'..' segment", "'a'"),
        (lambda: require_file(""), "empty", "relative to the workspace's prefix"),
        (lambda: require_file("raw\\a"), "backslash", "'raw/a'"),
        (lambda: require_dir("raw/"), "ends with '/'", "'raw'"),
        (lambda: require_glob("raw//*"), "empty segment", "'raw/*'"),
        (lambda: require_glob("./raw/*"), "'.' segment", "'raw/*'"),
        (lambda: require_glob("raw/[a-z"), "never closed", "close it with ']'"),
        (lambda: require_glob("raw/[z-a]"), "can't be read", "[a-z]"),
        (lambda: require_glob("raw/a**"), "only a part of the segment", "whole segment"),
        (lambda: require_glob("a" * 256), "longer than 255 bytes", "relative"),
        (lambda: require_glob("*", min_count=3, max_count=2), "more than max_count", "min_count=2"),
        (lambda: require_glob("*", max_count=0), "more than max_count (0)", "forbid_glob('*')"),
        (lambda: require_glob("*", min_count=True), "min_count can't be True", "whole number"),
        (lambda: forbid_glob("raw/.perago-attempt.json"), "reserved", "'raw'"),
        (
            lambda: WorkspaceSpec(pre=[require_dir("_lakefs_actions")]),
            "never part of a workspace",
            "leave that guardrail out",
        ),
        (lambda: WorkspaceSpec(pre=["raw/*"]), "pre[0] can't be 'raw/*'", "require_glob(…)"),
        (lambda: WorkspaceSpec(prefix=""), "prefix can't be ''", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="a/../b"), "'..' segment", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="./a"), "'.' segment", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="a//b"), "empty segment", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="a\\b"), "backslash", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="a\x07"), "control character", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefix="_lakefs_actions/x"), "hooks", "such as 'songs'"),
        (lambda: WorkspaceSpec(prefixes="a"), "no argument 'prefixes'", "did you mean 'prefix'?"),
        (lambda: WorkspaceSpec(read_only="yes"), "read_only can't be 'yes'", "True or False"),
    ],
)
def test_a_guardrail_or_prefix_that_can_never_work_is_refused_with_its_fix(declare, message, fix):
    with pytest.raises(TaskDefinitionError) as refused:
        declare()
    assert message in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize("written", ["songs", "songs/", "/songs", "/songs/", "//songs", " songs "])
def test_a_prefix_means_the_same_with_and_without_slashes_around_it(written):
    assert WorkspaceSpec(prefix=written).prefix == "songs"


class SomePath:
    def __fspath__(self):
        return "raw/a"


@pytest.mark.parametrize(
    "path", [PurePosixPath("raw/a"), PureWindowsPath("raw", "a"), Path("./raw//a"), SomePath()]
)
def test_a_path_object_means_the_path_inside_the_workspace(path):
    assert require_file(path) == require_file("raw/a")
    assert require_glob(path).label == "require_glob('raw/a')"


def test_a_path_object_with_a_drive_or_a_root_is_refused():
    for path in (PureWindowsPath("/raw"), Path("/raw")):
        with pytest.raises(TaskDefinitionError, match="starts with '/'"):
            require_dir(path)


def test_a_glob_that_holds_for_every_workspace_is_a_warning():
    spec = WorkspaceSpec(
        pre=[require_glob("*", min_count=0), require_glob("*.tmp", min_count=0, max_count=0)]
    )
    assert violations(spec.pre, ["a"]) == violations(spec.pre, []) == []
    (warning,) = spec.warnings()
    assert "require_glob('*', min_count=0) holds for every workspace" in warning


def test_a_glob_of_at_most_none_forbids():
    assert violations([require_glob("*.tmp", min_count=0, max_count=0)], ["a.tmp"]) != []


def test_the_default_prefix_is_the_whole_repository():
    assert WorkspaceSpec().prefix == "/"


def test_a_workspace_spec_is_a_value():
    first = WorkspaceSpec(prefix="songs", pre=[require_file(PurePosixPath("raw/a"))])
    second = WorkspaceSpec(prefix="/songs", pre=(require_file("raw/a"),))
    assert first == second
    assert hash(first) == hash(second)
    assert first.pre[0].label == "require_file('raw/a')"


def test_a_pattern_that_repeats_the_prefix_is_a_warning_because_it_could_be_meant():
    spec = WorkspaceSpec(
        prefix="songs",
        pre=[require_glob("songs/raw/*"), require_glob("raw/*"), require_dir("songs")],
    )
    first, second = spec.warnings()
    assert "songs/songs/" in first
    assert re.search(r"write 'raw/\*'", first)
    assert "require_dir('songs')" in second


def test_hooks_below_another_prefix_are_ordinary_files():
    assert WorkspaceSpec(prefix="songs", pre=[require_dir("_lakefs_actions")]).warnings() == []
