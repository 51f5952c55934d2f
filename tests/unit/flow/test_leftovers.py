"""What a dead execution left is found and removed; what a living one holds is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.flow.attempt_directory import NAMELESS_SECONDS, AttemptDirectory, collect, leftovers
from perago.model.attempt import Attempt, Execution
from perago.model.workspace import MARKER_NAME

ATTEMPT = Attempt("run-1", "clean", 1, 0, "task-1", 0, "songs.clean")

LEAVE_A_DIRECTORY_AND_DIE = """
import sys
from pathlib import Path
from perago.flow.attempt_directory import AttemptDirectory
from perago.model.attempt import Attempt, Execution
from perago.model.workspace import WorkspaceRef

root, ref, execution_id = sys.argv[1:]
attempt = Attempt("run-1", "clean", 1, 0, "task-1", 0, "songs.clean")
workspace = WorkspaceRef(repository="bench", branch="main", ref_type="commit", ref=ref)
AttemptDirectory.create(Path(root), Execution(attempt, execution_id), workspace)
"""


@pytest.fixture
def dead(atomic):
    """An execution whose process is gone, with its directory and its staging branch."""
    execution = Execution.begin(ATTEMPT)
    subprocess.run(
        [
            sys.executable,
            "-c",
            LEAVE_A_DIRECTORY_AND_DIE,
            str(atomic.bench.attempts),
            atomic.A,
            execution.id,
        ],
        check=True,
    )
    for branch in execution.branches:
        atomic.bench.store.create_branch("bench", branch, atomic.A, hidden=True)
    return execution


def test_the_directory_and_branches_of_a_dead_execution_are_collected(atomic, dead):
    (leftover,) = leftovers(atomic.bench.attempts)
    assert leftover.execution_id == dead.id
    collect(atomic.bench.store, leftover)
    atomic.assert_nothing_left()


def test_a_dead_execution_that_never_made_its_branches_is_collected_too(atomic, dead):
    for branch in dead.branches:
        atomic.bench.store.delete_branch("bench", branch)
    (leftover,) = leftovers(atomic.bench.attempts)
    collect(atomic.bench.store, leftover)
    atomic.assert_nothing_left()


def test_a_living_execution_is_left_alone(atomic):
    living = AttemptDirectory.create(
        atomic.bench.attempts, Execution.begin(ATTEMPT), atomic.bench.workspace()
    )
    assert list(leftovers(atomic.bench.attempts)) == []
    living.remove()


@pytest.mark.parametrize("content", ['{"execution_id": "', None], ids=["torn", "missing"])
def test_a_directory_without_a_readable_marker_is_collected_once_it_is_old(atomic, dead, content):
    (leftover,) = leftovers(atomic.bench.attempts)
    marker = leftover.path / MARKER_NAME
    marker.unlink() if content is None else marker.write_text(content)
    assert list(leftovers(atomic.bench.attempts)) == []

    long_ago = time.time() - NAMELESS_SECONDS - 1
    os.utime(leftover.path, (long_ago, long_ago))
    (nameless,) = leftovers(atomic.bench.attempts)
    collect(atomic.bench.store, nameless)
    assert list(atomic.bench.attempts.iterdir()) == []


def test_where_nothing_ever_ran_there_is_nothing_to_collect(tmp_path):
    assert list(leftovers(tmp_path / "never made")) == []


def test_an_execution_never_takes_over_a_directory_that_is_there(atomic):
    execution = Execution.begin(ATTEMPT)
    workspace = atomic.bench.workspace()
    first = AttemptDirectory.create(atomic.bench.attempts, execution, workspace)
    (first.files / "mine").touch()
    with pytest.raises(RuntimeConfigError, match="can't make the attempt's directory"):
        AttemptDirectory.create(atomic.bench.attempts, execution, workspace)
    assert (first.files / "mine").exists()
    first.remove()


def test_nothing_is_taken_for_a_leftover_that_is_not_named_and_furnished_as_one(tmp_path):
    photos, thesis = tmp_path / "photos", tmp_path / ("thesis-" + "0" * 32)
    for directory in (photos, thesis):
        directory.mkdir()
        (directory / "irreplaceable").write_text("!")
        os.utime(directory, (0, 0))
    assert list(leftovers(tmp_path)) == []


LOCK_UP_A_DIRECTORY_AND_REMOVE_IT = """
import os, sys
from pathlib import Path
from perago.flow.attempt_directory import AttemptDirectory
from perago.model.attempt import Attempt, Execution
from perago.model.workspace import WorkspaceRef

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
attempt = Attempt("run-1", "clean", 1, 0, "task-1", 0, "songs.clean")
workspace = WorkspaceRef(repository="bench", branch="main", ref_type="commit", ref="A")
root = Path(sys.argv[1])
directory = AttemptDirectory.create(root, Execution.begin(attempt), workspace)
locked = directory.files / "outer" / "inner"
locked.mkdir(parents=True)
(locked / "file").write_text("1")
locked.chmod(0o555)
locked.parent.chmod(0o555)
directory.remove()
print(len(list(root.iterdir())))
"""


def test_directories_a_task_made_read_only_are_removed_all_the_same():
    with tempfile.TemporaryDirectory() as root:  # pytest's own is closed to other users
        Path(root).chmod(0o777)
        answer = subprocess.run(
            [sys.executable, "-c", LOCK_UP_A_DIRECTORY_AND_REMOVE_IT, root],
            check=True,
            capture_output=True,
            text=True,
        )
    assert answer.stdout.strip() == "0"
