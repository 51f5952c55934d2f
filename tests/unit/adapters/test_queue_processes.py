"""One queue file, many processes, some of them killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from dataclasses import asdict

import pytest

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import StoreFormatError, StoreFullError
from perago.model.attempt import TaskStatus
from perago.model.run import RunPlan, RunStatus
from perago.testing.conformance.orchestrator_bench import completed, step, workspace

FIRST, SECOND = (step(name, response_seconds=600) for name in ("first", "second"))
PLAN = RunPlan("chain", "chains:chain", (FIRST, SECOND))

PRELUDE = """
import json, os, signal, sys
from pathlib import Path
from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import BranchBusyError
from perago.model.outcome import TaskReport
from perago.model.attempt import TaskStatus
from perago.model.run import RunPlan
from perago.testing.conformance.orchestrator_bench import completed, step, workspace
path, names = Path(sys.argv[1]), json.loads(sys.argv[2])
"""


def spawn(script, path, names=()):
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(script), path, json.dumps(names)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output_of(process):
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "queue.db"


@pytest.fixture
def queue(path):
    queue = EmbeddedQueue(path)
    yield queue
    queue.close()


def test_of_many_processes_each_task_reaches_exactly_one(queue, path):
    runs = [queue.start(PLAN, workspace()) for _ in range(15)]
    worker = """
        queue = EmbeddedQueue(path)
        while any(run.status == "RUNNING" for run in queue.runs()):
            for delivery in queue.poll(names, worker_id=str(os.getpid()), limit=2):
                print(json.dumps(delivery.attempt.task_id))
                assert queue.report(delivery, completed()).accepted
    """
    workers = [spawn(worker, path, [FIRST.task_name, SECOND.task_name]) for _ in range(3)]
    delivered = Counter(task_id for process in workers for task_id in output_of(process))
    assert len(delivered) == 2 * len(runs)
    assert set(delivered.values()) == {1}
    assert all(queue.get(run_id).status is RunStatus.COMPLETED for run_id in runs)


def test_processes_that_create_the_queue_and_claim_one_branch_at_once_agree(queue, path):
    claim = """
        place = workspace().model_copy(update={"branch": "main"})
        plan = RunPlan("chain", "chains:chain", (step("first"),))
        try:
            print(json.dumps(EmbeddedQueue(path).start(plan, place)))
        except BranchBusyError:
            print(json.dumps(None))
    """
    claims = [spawn(claim, path) for _ in range(4)]
    answers = [answer for process in claims for answer in output_of(process)]
    winners = [answer for answer in answers if answer is not None]
    assert len(answers) == 4
    assert [run.id for run in queue.runs()] == winners
    assert len(winners) == 1
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []


def test_a_report_killed_at_any_statement_happened_wholly_or_not_at_all(queue, path, tmp_path):
    """The child is killed before its n-th SQL statement, for every n until it gets through."""
    run_id = queue.start(PLAN, workspace())
    (delivery,) = queue.poll([FIRST.task_name], worker_id="w")
    queue.close()
    fields = json.dumps([asdict(delivery.attempt), delivery.poll_count])
    matrix = """
        import itertools, shutil
        from perago.model.attempt import Attempt, Delivery
        attempt, poll_count = json.loads(names)
        delivery = Delivery(Attempt(**attempt), {}, "w", 0.0, poll_count)
        for fatal in itertools.count(1):
            copy = path.parent / f"crash-{fatal}"
            shutil.copytree(path.parent / "state", copy)
            child = os.fork()
            if child == 0:
                queue, seen = EmbeddedQueue(copy / "queue.db"), itertools.count(1)
                def die(statement):
                    if next(seen) == fatal:
                        os.kill(os.getpid(), signal.SIGKILL)
                queue._database.connection().set_trace_callback(die)
                queue.report(delivery, completed())
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(json.dumps([str(copy), os.WIFSIGNALED(status)]))
            if not os.WIFSIGNALED(status):
                break
    """
    outcomes = output_of(spawn(matrix, tmp_path / "any", fields))
    assert len(outcomes) > 5
    assert [killed for _, killed in outcomes] == [True] * (len(outcomes) - 1) + [False]

    for copy, killed in outcomes:
        survivor = EmbeddedQueue(tmp_path / copy / "queue.db")
        now = [record.status for record in survivor.get(run_id).attempts]
        before, after = [TaskStatus.IN_PROGRESS], [TaskStatus.COMPLETED, TaskStatus.SCHEDULED]
        assert now == (before if killed else after)
        assert survivor.report(delivery, completed()).accepted
        assert [record.status for record in survivor.get(run_id).attempts] == after
        survivor.close()


def test_a_delivery_outlives_the_process_that_polled_it(queue, path):
    run_id = queue.start(PLAN, workspace())
    doomed = """
        (delivery,) = EmbeddedQueue(path).poll(names, worker_id="doomed")
        print(json.dumps(delivery.attempt.task_id), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process = spawn(doomed, path, [FIRST.task_name])
    printed, _ = process.communicate(timeout=60)
    (record,) = queue.get(run_id).attempts
    assert record.attempt.task_id == json.loads(printed)
    assert record.status is TaskStatus.IN_PROGRESS
    queue.resume(run_id)
    (successor,) = queue.poll([FIRST.task_name], worker_id="heir")
    assert successor.attempt.task_id != record.attempt.task_id


def test_a_forked_child_and_its_parent_both_go_on_with_the_same_object(queue, path):
    queue.start(PLAN, workspace())
    queue.start(PLAN, workspace())
    forking = """
        queue = EmbeddedQueue(path)
        def take(who):
            (delivery,) = queue.poll(names, worker_id=who)
            assert queue.report(delivery, completed()).accepted
            print(json.dumps(delivery.attempt.task_id), flush=True)
        queue.runs()
        child = os.fork()
        if child == 0:
            take("child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        take("parent")
    """
    assert len(set(output_of(spawn(forking, path, [FIRST.task_name])))) == 2


def test_threads_share_one_queue_object(queue):
    for _ in range(12):
        queue.start(PLAN, workspace())
    taken = []

    def work():
        while deliveries := queue.poll([FIRST.task_name], worker_id="w"):
            taken.extend(delivery.attempt.task_id for delivery in deliveries)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 12


def test_commits_reach_the_disk_before_they_count(queue):
    connection = queue._database.connection()  # noqa: SLF001 - only SQLite knows
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    assert (journal, synchronous) == ("wal", 2)


class TestFormat:
    def test_another_format_is_refused(self, queue, path):
        queue.runs()
        queue.close()
        other = sqlite3.connect(path)
        other.execute("PRAGMA user_version = 99")
        other.close()
        with pytest.raises(StoreFormatError, match="format 99"):
            queue.runs()

    def test_another_database_is_refused(self, queue, path):
        path.parent.mkdir()
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE songs (title TEXT)")
        other.close()
        with pytest.raises(StoreFormatError, match="not a Perago queue"):
            queue.runs()

    def test_a_file_that_is_no_database_is_refused(self, queue, path):
        path.parent.mkdir()
        path.write_bytes(b"no database at all" * 100)
        with pytest.raises(StoreFormatError, match="not a readable SQLite database"):
            queue.runs()

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        queue = EmbeddedQueue(tmp_path / "file" / "queue.db")
        with pytest.raises(StoreFullError, match=r"queue\.db"):
            queue.runs()
