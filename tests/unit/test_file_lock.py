import fcntl
import os
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

from perago.errors import RunBusyError
from perago.file_lock import is_locked, locked, owned, try_lock

HOLD = """
import sys
from pathlib import Path
from perago.file_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "lock"


@pytest.fixture
def holder(path):
    """Another process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def opened(stack, path):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    stack.callback(os.close, descriptor)
    return descriptor


def test_a_lock_is_held_within_the_block_only(path):
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_missing_file_is_not_locked(path):
    assert not is_locked(path)
    assert not path.exists()


def test_an_unreadable_file_counts_as_locked(path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert is_locked(path)


def test_the_descriptor_of_the_locked_file_can_be_written(path):
    with locked(path) as descriptor:
        os.pwrite(descriptor, b"claim", 0)
    assert path.read_bytes() == b"claim"


@pytest.mark.usefixtures("holder")
def test_a_lock_of_another_process_is_seen(path):
    assert is_locked(path)


def test_the_kernel_releases_the_lock_of_a_killed_process(path, holder):
    holder.kill()
    holder.wait()
    assert not is_locked(path)
    with locked(path, lambda: pytest.fail("it is free")):
        pass


def test_a_waiting_process_says_so_once_and_then_gets_the_lock(path):
    waits = []
    with locked(path):
        is_waiting, is_done = threading.Event(), threading.Event()

        def wait():
            with locked(path, lambda: (waits.append(1), is_waiting.set())):
                is_done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert is_waiting.wait(10)
        assert not is_done.is_set()
    thread.join(10)
    assert is_done.is_set()
    assert waits == [1]


def test_shared_locks_go_together_and_exclude_an_exclusive_one(tmp_path):
    path = tmp_path / "lock"
    with ExitStack() as stack:
        first, second, third = (opened(stack, path) for _ in range(3))
        assert try_lock(first, shared=True)
        assert try_lock(second, shared=True)
        assert not try_lock(third)
        assert not is_locked(path)  # asks for an exclusive holder


def test_trying_ends_after_its_timeout_or_when_the_lock_is_free(tmp_path):
    path = tmp_path / "lock"
    with ExitStack() as stack:
        first, second = (opened(stack, path) for _ in range(2))
        assert try_lock(first)
        assert not try_lock(second, timeout=0.05)
        timer = threading.Timer(0.1, fcntl.flock, (first, fcntl.LOCK_UN))
        timer.start()
        assert try_lock(second, timeout=10)


def test_an_owner_leaves_its_process_id_in_the_file(path):
    with owned(path, RunBusyError):
        assert path.read_text() == str(os.getpid())
        assert is_locked(path)
    assert not is_locked(path)


def test_a_second_owner_gets_the_process_id_of_the_first(path):
    with (
        owned(path, RunBusyError),
        pytest.raises(RunBusyError, match=f"^{os.getpid()}$"),
        owned(path, RunBusyError),
    ):
        pytest.fail("it is owned")
