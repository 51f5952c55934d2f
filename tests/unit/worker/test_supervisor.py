"""What a supervisor does about a dead executor and about an orchestrator that doesn't answer."""

import socket
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import AttemptStep, TaskStatus
from perago.settings import Settings
from perago.testing import Bench
from perago.worker.cleanup import remove_leftovers
from perago.worker.events import NullObserver
from perago.worker.messages import ExecutorConfig, Ready, StepStart
from perago.worker.orchestrator_link import InlineLink
from perago.worker.slot import Slot
from perago.worker.supervisor import Supervisor, TaskTarget, WorkerPaths


class Nothing(BaseModel):
    pass


@task(
    name="supervised.step",
    owner_email="a@b.c",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(count=1, delay_seconds=0)),
)
def step(ws: Path, params: Nothing) -> Nothing:
    return params


@dataclass
class ScriptedExecutor:
    """An executor that says and does what the test tells it to."""

    said: list = field(default_factory=lambda: [Ready()])
    cause: str | None = None
    step: AttemptStep | None = None
    pid: int = 0

    def __post_init__(self):
        self._ours, theirs = socket.socketpair()
        self.connection = Connection(theirs.detach())

    def messages(self):
        said, self.said = self.said, []
        for message in said:
            if isinstance(message, StepStart):
                self.step = message.step
        return said

    def assign(self, _assignment):
        self.step = None

    def send(self, message):
        pass

    def forget(self):
        pass

    def death(self):
        return self.cause

    def ask_to_end(self):
        pass

    def end(self):
        self.connection.close()
        self._ours.close()
        return self.messages()


class OutlivingStore:
    """A store whose requests may land after their sender died, as a server's may."""

    outlives_callers = True

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)


class SilentFor:
    """An orchestrator that doesn't answer the next few times it is asked."""

    def __init__(self, queue):
        self._queue = queue
        self.silent = 0

    def __getattr__(self, name):
        method = getattr(self._queue, name)

        def answer(*args, **kwargs):
            if self.silent:
                self.silent -= 1
                raise OrchestratorUnavailableError("not now")
            return method(*args, **kwargs)

        return answer


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def executors():
    return []


@pytest.fixture
def supervise(bench, executors, tmp_path):
    made = []

    def start(_employment):
        executors.append(ScriptedExecutor())
        return executors[-1]

    def make(store=None, orchestrator=None):
        run = bench.queue.get(bench.start(step))
        store = store or bench.store
        settings, observer = Settings(home=tmp_path / "home"), NullObserver()
        link = InlineLink(orchestrator or bench.queue, bench.clock, worker_id="worker-1")
        link.set_tasks([planned.task_name for planned in run.plan.steps])
        supervisor = Supervisor(
            link,
            [Slot(ExecutorConfig(settings), bench.clock, observer, start)],
            lambda _attempt: TaskTarget(run.plan.steps[0].module, run.plan.steps[0].controls),
            paths=WorkerPaths(
                logs_of=lambda _attempt: tmp_path,
                clean_up=lambda: remove_leftovers(store, settings.attempts),
                requests_outlive_us=store.outlives_callers,
                on="",
            ),
            clock=bench.clock,
            observer=observer,
        )
        made.append(supervisor)
        supervisor.start()
        for _ in range(2):
            supervisor.tick(0)
        return supervisor, lambda: bench.queue.get(run.id).attempts

    yield make
    for supervisor in made:
        supervisor.stop()


def die_while(executors, doing):
    executors[-1].said = [StepStart(AttemptStep(doing))]
    executors[-1].cause = "was ended by SIGKILL"


def test_a_death_is_reported_at_once_where_requests_die_with_their_sender(supervise, executors):
    supervisor, attempts = supervise()
    supervisor.tick(0)
    die_while(executors, "publish")
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.FAILED
    assert "it may have published" in attempts()[0].reason


def test_a_death_while_publishing_is_reported_once_its_request_can_land_no_more(
    bench, supervise, executors
):
    supervisor, attempts = supervise(store=OutlivingStore(bench.store))
    supervisor.tick(0)
    die_while(executors, "publish")
    supervisor.tick(0)
    bench.clock.advance(29)
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.IN_PROGRESS
    bench.clock.advance(2)
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.FAILED


def test_a_death_elsewhere_is_reported_at_once_on_any_store(bench, supervise, executors):
    supervisor, attempts = supervise(store=OutlivingStore(bench.store))
    supervisor.tick(0)
    die_while(executors, "body")
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.FAILED
    assert "out of memory?" in attempts()[0].reason


def test_an_orchestrator_that_does_not_answer_is_asked_again(bench, supervise, executors):
    orchestrator = SilentFor(bench.queue)
    supervisor, attempts = supervise(orchestrator=orchestrator)
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.IN_PROGRESS
    bench.clock.advance(31)
    orchestrator.silent = 2
    for _ in range(2):
        supervisor.tick(0)
        bench.clock.advance(1)
    assert supervisor.is_busy
    supervisor.tick(0)
    bench.clock.advance(590)
    assert bench.queue.reload(attempts()[0].attempt).status is TaskStatus.IN_PROGRESS

    die_while(executors, "body")
    orchestrator.silent = 1
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.IN_PROGRESS
    supervisor.tick(0)
    assert attempts()[0].status is TaskStatus.FAILED


@pytest.mark.parametrize(
    ("last_word", "is_given_back"), [("stage.upload", True), ("publish", False), ("report", False)]
)
def test_what_had_begun_to_publish_by_its_last_word_is_not_given_back(
    last_word, is_given_back, bench, supervise, executors
):
    supervisor, attempts = supervise()
    supervisor.tick(0)
    executors[-1].said = [StepStart(AttemptStep(last_word))]
    supervisor.leave()
    handed_out = bench.queue.poll([step.name], worker_id="worker-2")
    assert [d.attempt.task_id for d in handed_out] == (
        [attempts()[0].attempt.task_id] if is_given_back else []
    )
