"""Many processes at once, and processes killed at any moment: what is committed is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from perago.adapters.embedded.store import EmbeddedStore, blobs
from perago.model.workspace import Signature, Upload


def opened(root, **options):
    return EmbeddedStore(root, durable=False, **options)


def test_bytes_and_names_are_on_disk_before_a_row_refers_to_them(tmp_path, monkeypatch):
    store = EmbeddedStore(tmp_path / "store")
    store.create_repository("data")
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    happened = []

    def noted(name, real):
        def call(first, *rest):
            path = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first
            happened.append((name, str(path)))
            return real(first, *rest)

        return call

    monkeypatch.setattr(blobs.os, "fsync", noted("fsync", os.fsync))
    monkeypatch.setattr(blobs.os, "rename", noted("rename", os.rename))
    connection = store._database.connection()  # noqa: SLF001 - only SQLite can tell when it writes
    connection.set_trace_callback(lambda sql: happened.append(("sql", sql.split()[0])))
    store.upload("data", "main", [Upload("a", file, Signature.of(file.stat()))])
    connection.set_trace_callback(None)

    (entry,) = store.list_objects("data", "main")
    directory = str(store.root / "objects" / entry.checksum[:2])
    steps = [step for step in happened if step != ("sql", "SELECT")]
    incoming = steps[0][1]
    assert incoming.startswith(str(store.root / "tmp"))
    assert steps[:2] == [("fsync", incoming), ("rename", incoming)]
    named = steps.index(("fsync", directory))
    assert steps[1:].index(("rename", incoming)) < named < steps.index(("sql", "INSERT"))
    assert ("fsync", str(store.root / "objects")) in steps[: steps.index(("sql", "INSERT"))]
    store.close()


@pytest.mark.parametrize("durable", [True, False])
def test_every_directory_a_new_store_is_made_in_has_its_name_on_disk(
    tmp_path, monkeypatch, durable
):
    synced = set()
    fsync = os.fsync

    def noted(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    root = tmp_path / "project" / ".perago" / "store"
    EmbeddedStore(root, durable=durable).close()
    holders = {tmp_path, tmp_path / "project", tmp_path / "project" / ".perago", root}
    assert holders <= synced if durable else not synced


WRITER = """
import os, sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
from perago.model.workspace import Signature, Upload
root, files = Path(sys.argv[1]), Path(sys.argv[2])
files.mkdir()
store = EmbeddedStore(root)
for round in range(1000):
    uploads = []
    for n in range(20):
        path = files / f"{round}-{n}"
        path.write_bytes(os.urandom(5000))
        uploads.append(Upload(f"file-{n}", path, Signature.of(path.stat())))
    store.upload("data", "main", uploads)
    commit = store.commit("data", "main", message=str(round), metadata={})
    print(commit.id, flush=True)
"""


@pytest.mark.parametrize("commits_before_the_kill", [1, 3, 6])
def test_a_writer_killed_at_any_moment_loses_nothing_it_had_committed(
    tmp_path, commits_before_the_kill
):
    store = EmbeddedStore(tmp_path / "store")
    store.create_repository("data")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.root), str(tmp_path / "files")],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        printed = [writer.stdout.readline().strip() for _ in range(commits_before_the_kill)]
        # Not synchronisation: it only spreads the moment of death over the next round.
        threading.Event().wait(0.003 * commits_before_the_kill)
        writer.send_signal(signal.SIGKILL)
        printed += writer.stdout.read().split()

    history = [commit.id for commit in store.history("data", "main")]
    assert set(printed) <= set(history)
    assert len(history) - 1 - len(printed) in (0, 1)  # one may have been committed and not printed
    report = store.verify()
    assert report.clean, report.findings
    assert len(list(store.list_objects("data", printed[-1]))) == 20

    store.gc(keep_seconds=0)
    assert list((store.root / "tmp").iterdir()) == []
    report = store.verify()
    assert report.clean
    assert report.unreferenced_objects == 0
    store.close()


RACER = """
import sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
from perago.errors import HeadMovedError

root, name = Path(sys.argv[1]), sys.argv[2]
store = EmbeddedStore(root, durable=False)
for number, _start in enumerate(sys.stdin):
    head, branch = store.head("data", "main").id, f"{name}-{number}"
    store.create_branch("data", branch, head)
    store.put_bytes("data", branch, branch, b"1")
    staged = store.commit("data", branch, message=name, metadata={})
    print("staged", flush=True)
    sys.stdin.readline()
    try:
        store.merge("data", staged.id, "main", expected_head=head, message=name, metadata={})
    except HeadMovedError:
        print("lost", flush=True)
    else:
        print("won", flush=True)
store.close()
"""


def test_of_processes_that_compare_and_swap_one_wins_each_round(tmp_path):
    store, rounds = opened(tmp_path / "store"), 8
    store.create_repository("data")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(store.root), f"racer{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]

    def all_at_once():
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [racer.stdout.readline().strip() for racer in racers]

    for _ in range(rounds):
        assert all_at_once() == ["staged"] * 3
        assert sorted(all_at_once()) == ["lost", "lost", "won"]
    for racer in racers:
        racer.communicate(timeout=60)
    assert len(list(store.history("data", "main"))) == rounds + 1
    assert store.verify().clean
    store.close()


CREATOR = """
import sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
sys.stdin.readline()
store = EmbeddedStore(Path(sys.argv[1]))
store.create_repository(sys.argv[2])
store.close()
"""


def test_processes_may_create_one_store_at_the_same_moment(tmp_path):
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR, str(tmp_path / "store"), f"repository-{n}"],
            stdin=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for creator in creators:
        creator.stdin.write("go\n")
        creator.stdin.flush()
    for creator in creators:
        creator.communicate(timeout=60)
        assert creator.returncode == 0
    store = opened(tmp_path / "store")
    assert store.repositories() == [f"repository-{n}" for n in range(4)]
    store.close()


FORKER = """
import os, sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
store = EmbeddedStore(Path(sys.argv[1]))
store.create_repository("data")
child = os.fork()
key = "child" if child == 0 else "parent"
for n in range(20):
    store.put_bytes("data", "main", f"{key}-{n}", key.encode())
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.commit("data", "main", message="", metadata={})
assert len(list(store.list_objects("data", "main"))) == 40
assert store.verify().clean
store.close()
"""


def test_an_open_store_survives_a_fork(tmp_path):
    subprocess.run([sys.executable, "-c", FORKER, str(tmp_path)], check=True, timeout=60)


def test_threads_that_ended_leave_no_connection_behind(tmp_path):
    store = opened(tmp_path / "store")
    store.create_repository("data")
    for _ in range(30):
        thread = threading.Thread(target=store.head, args=("data", "main"))
        thread.start()
        thread.join()
    database = (store.root / "store.db").stat()
    assert sum(os.path.samestat(database, stat) for stat in _open_files()) <= 3
    store.close()


def _open_files():
    for descriptor in range(256):
        with suppress(OSError):
            yield os.fstat(descriptor)
