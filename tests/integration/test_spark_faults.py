"""Drivers and executors that die, stand still or run twice: one publication, nothing stray."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.processes import PROC, command_of, processes_with, until
from support.spark import ON_LOOPBACK, SparkRig, engines_for, settings_for
from support.tasks import spark_fault_tasks
from support.tasks.spark_fault_tasks import append, faults

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import TaskStatus
from perago.model.outcome import PublishPath
from perago.ports.environment import FAILPOINTS
from perago.stack.server import free_port, launch
from perago.stack.spark import worker_server
from perago.stack.test_server import TemporaryServer
from perago.testing import ManualClock
from perago.wiring import build_runtime, open_queue

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SPECULATIVE = {
    "spark.dynamicAllocation.enabled": "false",  # all that there are, from the start
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
}
RUN_SECONDS = 600
APPENDED = [100, 101, 102, 103]
HALF = len(FAILPOINTS) // 2


@pytest.fixture(scope="module")
def engines(lakefs_server, spark_cluster, tmp_path_factory):
    """A driver of that cluster, which starts a second copy of what takes long."""
    home = tmp_path_factory.mktemp("spark") / "home"
    settings = settings_for(
        home, lakefs_server, spark_master=spark_cluster.address, conf=ON_LOOPBACK | SPECULATIVE
    )
    with engines_for(settings) as engines:
        yield engines


@pytest.fixture
def worker_elsewhere(spark_cluster, tmp_path):
    """A third worker, on another host: Spark runs no second copy on the host of the first."""
    here = worker_server(
        "spark-worker-3", tmp_path / "worker", free_port(), print, master=spark_cluster.address
    )
    *words, master = here.command
    there = replace(
        here,
        command=(*(elsewhere(word) for word in words), master),
        health_url=elsewhere(here.health_url),
        environment={name: elsewhere(value) for name, value in here.environment.items()},
    )
    with TemporaryServer(there, launch(there)):
        yield


def elsewhere(text):
    return text.replace("127.0.0.1", "127.0.0.2")


@pytest.fixture
def place(engines, lakefs_server, tmp_path):
    with closing(SparkRig(tmp_path, engines, lakefs_server)) as opened:
        yield opened


def assert_published_once(place, before, *, files, rows):
    head = place.bench.store.head(place.bench.repository, place.bench.branch)
    assert head.parents == (before,)
    assert [row["n"] for row in place.rows("t")] == rows
    assert len(place.objects()) == files, "no stray object"
    place.assert_nothing_left()


def slow_write(ws, seconds, *, if_row, rows=4, path="t"):
    """Some rows, each by a task and in a file of its own; the rows named take that long."""
    slow = f"if({if_row}, java_method('java.lang.Thread', 'sleep', {seconds * 1000}L), '')"
    frame = ws.spark.range(0, rows, 1, rows).selectExpr("id as n", f"{slow} as slow")
    frame.write.parquet(ws.output(path))


# --- executors -----------------------------------------------------------------------------------


def executors_of(spark):
    """The processes that compute for a driver: it is named in their commands."""
    port = spark.conf.get("spark.driver.port")
    driver = f"CoarseGrainedScheduler@127.0.0.1:{port}"
    pids = [int(path.name) for path in PROC.glob("[0-9]*")]
    return [pid for pid in pids if driver in (command := command_of(pid)) and "java" in command]


def test_an_executor_killed_during_a_write_is_made_up_for(place):
    before = place.bench.head
    killed = []

    def kill_one(spark):
        tracker = spark.sparkContext.statusTracker()

        def is_writing():
            stages = [tracker.getStageInfo(n) for n in tracker.getActiveStageIds()]
            return any(stage and stage.numActiveTasks for stage in stages)

        until(is_writing, "a task that writes")
        pid = until(lambda: executors_of(spark), "an executor")[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    def body(ws):
        killer = threading.Thread(target=kill_one, args=[ws.spark])
        killer.start()
        slow_write(ws, 3, if_row="true")
        killer.join()

    place.answer(body)
    assert len(killed) == 1
    assert_published_once(place, before, files=4, rows=[0, 1, 2, 3])


@pytest.mark.usefixtures("worker_elsewhere")
def test_of_a_task_that_is_run_twice_at_a_time_one_is_published(place):
    before = place.bench.head

    def body(ws):
        until(lambda: has_executor_elsewhere(ws.spark), "the third worker's executor")
        slow_write(ws, 1, if_row="true", rows=6, path="first")  # and all are in practice
        slow_write(ws, 12, if_row="id = 3")
        context = ws.spark.sparkContext
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
        stages = [stage for job in jobs for stage in tracker.getJobInfo(job).stageIds]
        store = context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        return sum(store.speculationSummary(stage, 0).isDefined() for stage in stages)

    assert place.answer(body) >= 1, "there was a second copy"
    assert_published_once(place, before, files=10, rows=[0, 1, 2, 3])


def has_executor_elsewhere(spark):
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001
    return any(executor.host() == "127.0.0.2" for executor in executors)


# --- a driver that stood still --------------------------------------------------------------------

ZOMBIE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from spark_fault_tasks import append
from perago.flow.lifecycle import run_attempt
from perago.settings import load_settings
from perago.wiring import build_runtime

runtime = build_runtime(load_settings())
(delivery,) = runtime.orchestrator.poll([append.name], worker_id="late")
print(run_attempt(delivery, append, runtime).report.reason)
runtime.engines["spark"].spark.stop()
"""


@pytest.mark.parametrize(
    ("failpoint", "refusal"),
    [
        ("staging.branch_created", "stale_attempt"),
        ("fence2.passed", "stale_attempt"),
        ("publish.decided", "publish_fence"),
    ],
)
def test_a_driver_that_goes_on_after_its_retry_published_is_refused(
    place, lakefs_server, tmp_path, failpoint, refusal
):
    place.bench.write({"songs/raw.txt": "as it was"})
    before = place.bench.head
    settings = settings_for(tmp_path / "home", lakefs_server, publish_fence="cas")
    with closing(open_queue(settings)) as queue:
        queue.start(faults.plan({}), place.bench.workspace())
        zombie = subprocess.Popen(
            [sys.executable, "-c", ZOMBIE, str(Path(spark_fault_tasks.__file__).parent)],
            cwd=tmp_path,
            env=os.environ
            | environment_of(settings, lakefs_server)
            | {"PERAGO_FAILPOINTS": f"{failpoint}=stop"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _, status = os.waitpid(zombie.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it ended instead, with status {status}"
            outcome = retry(settings, place.engines)
            assert outcome.accepted, outcome
            assert outcome.published.path is PublishPath.MERGED

            zombie.send_signal(signal.SIGCONT)
            said, _ = zombie.communicate(timeout=RUN_SECONDS)
        finally:
            zombie.kill()
            zombie.communicate()
        assert said.strip().startswith(f"{refusal}: ")
        (run,) = queue.runs()
    assert [each.status for each in run.attempts] == [TaskStatus.TIMED_OUT, TaskStatus.COMPLETED]
    head = place.bench.store.head(place.bench.repository, "main")
    assert (head.id, head.parents) == (outcome.published.ref, (before,))
    assert [row["n"] for row in place.rows("songs/t")] == APPENDED
    assert [key for key in place.objects() if not key.endswith(".parquet")] == ["songs/raw.txt"]
    assert place.staging_branches == []


def retry(settings, engines):
    """The next attempt, made here by a clock that has the first one's lease run out."""
    lease = append.controls.timeout.response_seconds
    runtime = replace(
        build_runtime(settings),
        engines=engines,
        orchestrator=EmbeddedQueue(settings.queue, clock=ManualClock(time.time() + lease + 1)),
    )
    with closing(runtime.store), closing(runtime.orchestrator) as queue:
        (delivery,) = queue.poll([append.name], worker_id="another")
        return run_attempt(delivery, append, runtime)


def environment_of(settings, server):
    return {
        **server.settings,
        "PERAGO_HOME": str(settings.home),
        "PERAGO_STORE": "lakefs",
        "PERAGO_PUBLISH_FENCE": settings.publish_fence,
        "SPARK_MASTER": "local[2]",
        "PERAGO_SPARK_CONF": json.dumps(settings.spark_conf),
    }


# --- drivers that die ----------------------------------------------------------------------------


class DisturbedRun:
    """``perago run`` of a Spark task on lakeFS, in a process of its own."""

    def __init__(self, place, directory, server):
        self.place = place
        self.home = directory / "home"
        self._directory = directory
        self.settings = settings_for(self.home, server, publish_fence="cas")
        self._environment = os.environ | environment_of(self.settings, server)
        place.bench.write({"songs/raw.txt": "as it was"})
        self.before = place.bench.head
        place.bench.branch = "work"  # which it makes: it runs on no others
        shutil.copy(spark_fault_tasks.__file__, directory)

    def start(self, **variables):
        with (self._directory / "said").open("wb") as said:
            return subprocess.Popen(
                [
                    *(Path(sys.executable).with_name("perago"), "run", "--json"),
                    *("spark_fault_tasks:faults", "--branch", self.place.bench.branch),
                    *("--repository", self.place.bench.repository),
                ],
                cwd=self._directory,
                env=self._environment | {name: str(value) for name, value in variables.items()},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def executor(self):
        """The process that a driver is a part of."""
        found = [
            pid
            for pid in processes_with("PERAGO_HOME", str(self.home))
            if "perago.worker.executor" in command_of(pid)
        ]
        return found[0] if found else None

    def assert_ended_well(self, process, *, attempts):
        try:
            code = process.wait(RUN_SECONDS)
        finally:
            process.kill()
        assert code == 0, (self._directory / "said").read_text(errors="replace")
        with closing(open_queue(self.settings)) as queue:
            (run,) = queue.runs()
        assert run.status == "COMPLETED"
        assert len(run.attempts) == attempts
        place = self.place
        head = place.bench.store.head(place.bench.repository, place.bench.branch)
        assert head.parents == (self.before,), "one publication, on what the run was given"
        assert run.output_ref == head.id
        assert [row["n"] for row in place.rows("songs/t")] == APPENDED
        assert [key for key in place.objects() if not key.endswith(".parquet")] == ["songs/raw.txt"]
        assert place.staging_branches == []
        assert list(self.settings.attempts.iterdir()) == []
        assert processes_with("PERAGO_HOME", str(self.home)) == []


@pytest.fixture
def disturbed(lakefs_server, tmp_path):
    """Without a driver in this process: it has none to do with."""
    with closing(SparkRig(tmp_path, {}, lakefs_server)) as place:
        (tmp_path / "run").mkdir()
        run = DisturbedRun(place, tmp_path / "run", lakefs_server)
        yield run
        for pid in processes_with("PERAGO_HOME", str(run.home)):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.core
def test_a_driver_killed_during_a_write_is_followed_by_one_that_publishes(disturbed, tmp_path):
    flag = tmp_path / "writing"
    process = disturbed.start(HOLD_WRITE=flag)
    until(flag.exists, "the write to begin", seconds=RUN_SECONDS)
    os.kill(disturbed.executor(), signal.SIGKILL)
    disturbed.assert_ended_well(process, attempts=2)


@pytest.mark.parametrize(
    "failpoints", [FAILPOINTS[:HALF], FAILPOINTS[HALF:]], ids=["before committing", "after"]
)
def test_a_driver_killed_at_each_failpoint_in_turn_publishes_once_in_the_end(
    disturbed, tmp_path, failpoints
):
    deaths = [f"{name}=kill-once:{tmp_path / name}" for name in failpoints]
    process = disturbed.start(PERAGO_FAILPOINTS=",".join(deaths))
    after_the_report = {"report.sent", "directory.removed"} & set(failpoints)
    attempts = len(failpoints) - len(after_the_report) + 1
    disturbed.assert_ended_well(process, attempts=attempts)
    assert all((tmp_path / name).exists() for name in set(failpoints) - {"directory.removed"})


# --- drivers that rest ---------------------------------------------------------------------------


def test_a_driver_without_work_leaves_its_cluster_to_others(lakefs_server, spark_cluster, tmp_path):
    resting = ON_LOOPBACK | {  # sooner than by default
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    }
    settings = settings_for(
        tmp_path / "home", lakefs_server, spark_master=spark_cluster.address, conf=resting
    )
    with (
        engines_for(settings) as engines,
        closing(SparkRig(tmp_path, engines, lakefs_server)) as place,
    ):
        for _ in range(2):
            place.answer(lambda ws: ws.spark.range(0, 8, 1, 4).repartition(2).count())
            spark = SparkSession.getActiveSession()
            assert executors_of(spark)
            until(lambda spark=spark: not executors_of(spark), "its executors to be given back")
