"""An import is one commit on the head it started from, or nothing."""

import pytest

from perago.errors import HeadMovedError, RunError, RuntimeConfigError, WrongLandingError
from perago.operations.import_export import import_directory
from perago.testing import Bench


@pytest.fixture(params=["atomic", "lakefs"])
def bench(request, tmp_path):
    made = Bench(tmp_path / "bench", semantics=request.param)
    yield made
    made.close()


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "a.txt").write_text("a")
    return tmp_path / "songs"


def _import(bench, directory, **more):
    return import_directory(
        bench.store, repository=bench.repository, branch=bench.branch, directory=directory, **more
    )


def test_the_commit_is_the_only_child_of_the_head_it_found(bench, directory):
    head = bench.head
    commit = _import(bench, directory)
    assert commit.parents == (head,)
    assert bench.read() == {"a.txt": b"a"}
    assert bench.staging_branches() == []


def test_a_head_that_moved_meanwhile_is_never_reported_as_success(bench, directory):
    def somebody_else():
        bench.write({"theirs": "x"})

    refused = HeadMovedError if bench.semantics == "atomic" else WrongLandingError
    with pytest.raises(refused):
        _import(bench, directory, before_publishing=somebody_else)
    assert bench.read()["theirs"] == b"x"
    assert bench.staging_branches() == []


def test_a_last_minute_refusal_leaves_the_branch_as_it_was(bench, directory):
    def refuse():
        raise RunError("a run has started")

    head = bench.head
    with pytest.raises(RunError, match="a run has started"):
        _import(bench, directory, before_publishing=refuse)
    assert bench.head == head
    assert bench.staging_branches() == []


def test_the_repositorys_own_actions_are_never_removed(bench, directory):
    bench.write({"_lakefs_actions/fence.yaml": "on: pre-merge", "old.txt": "x"})
    _import(bench, directory)
    assert sorted(bench.read()) == ["_lakefs_actions/fence.yaml", "a.txt"]


def test_an_empty_directory_empties_the_prefix(bench, directory, tmp_path):
    _import(bench, directory, prefix="songs")
    (tmp_path / "empty").mkdir()
    _import(bench, tmp_path / "empty", prefix="songs")
    assert bench.read() == {}


def test_what_is_no_directory_is_refused_by_name(bench, tmp_path):
    with pytest.raises(RuntimeConfigError, match="nowhere"):
        _import(bench, tmp_path / "nowhere")
