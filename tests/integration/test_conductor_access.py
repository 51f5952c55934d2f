"""How the adapter gets to Conductor, and what it says when it doesn't."""

import socket
import threading
import uuid

import pytest
import trustme
from support.http_servers import KEY, SECRET, KeyGuard
from support.wire import (
    FaultyWire,
    answer,
    cut_answer,
    delay,
    drop_answer,
    drop_request,
    set_header,
)

from perago.adapters.conductor import orchestrator as adapter
from perago.adapters.conductor.client import ConductorConfig
from perago.adapters.conductor.http import Timeouts
from perago.adapters.conductor.orchestrator import ConductorOrchestrator
from perago.errors import (
    OrchestratorAccessError,
    OrchestratorError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
)
from perago.model.attempt import Attempt, Delivery, TaskStatus
from perago.testing.conformance.orchestrator_bench import completed, step, take, workspace


@pytest.fixture
def connect():
    """Makes orchestrators, which end with the test."""
    made = []

    def make(address, *given, **named):
        made.append(ConductorOrchestrator(ConductorConfig(address, *given, **named)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def wire(conductor_server):
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        yield wire


@pytest.fixture
def through(wire, connect):
    """An orchestrator on that wire."""
    timeouts = Timeouts(answer=2.0)
    return connect(f"{wire.endpoint}/api", timeouts=timeouts)


def ask(orchestrator):
    """Anything that needs an answer."""
    return orchestrator.poll([f"nobody.{uuid.uuid4().hex[:8]}"], worker_id="w")


def everything(orchestrator):
    """Each thing that a worker asks, as a call that takes nothing."""
    attempt = Attempt("w-1", "first", 1, 0, "t-1", 0, "nobody.first")
    delivery = Delivery(attempt, {}, "w", 60.0)
    return [
        lambda: orchestrator.poll(["nobody.first"], worker_id="w"),
        lambda: orchestrator.reload(attempt),
        lambda: orchestrator.accepted_ref("t-1"),
        lambda: orchestrator.heartbeat(delivery),
        lambda: orchestrator.report(delivery, completed()),
        lambda: orchestrator.give_back(delivery),
        lambda: orchestrator.writers("songs", "main"),
    ]


# --- the wrong place ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/ap"])
def test_an_address_that_is_not_the_apis_is_told_with_how_it_ends(conductor_server, connect, path):
    for call in everything(connect(conductor_server.removesuffix("/api") + path)):
        with pytest.raises(OrchestratorRefusedError, match="isn't Conductor's API") as refused:
            call()
        assert "CONDUCTOR_SERVER_URL" in refused.value.fix
        assert "/api" in refused.value.fix


def test_where_nobody_listens_there_is_no_answer_and_the_address_is_named(connect):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/api"
        for call in everything(connect(address)):
            with pytest.raises(OrchestratorUnavailableError, match=address) as unavailable:
                call()
            assert "CONDUCTOR_SERVER_URL" in unavailable.value.fix


def test_a_host_that_does_not_exist_is_told_as_unavailable(connect):
    with pytest.raises(OrchestratorUnavailableError, match=r"nowhere\.invalid"):
        ask(connect("http://nowhere.invalid/api"))


def test_another_server_is_not_taken_for_conductor(connect, lakefs_server):
    with pytest.raises(OrchestratorError):
        ask(connect(f"{lakefs_server.endpoint}/api"))


# --- keys -----------------------------------------------------------------------------------------


@pytest.fixture
def guard(conductor_server):
    with KeyGuard(conductor_server) as guard:
        yield guard


def test_with_its_key_a_guarded_server_lets_us_in_by_one_token(guard, connect):
    orchestrator = connect(guard.address, KEY, SECRET)
    for _ in range(3):
        assert ask(orchestrator) == []
    assert guard.handed_out == 1


def test_a_token_that_is_not_good_any_more_is_replaced_once_for_all_threads(guard, connect):
    orchestrator = connect(guard.address, KEY, SECRET)
    ask(orchestrator)
    guard.expire()
    ready = threading.Barrier(4)

    def ask_with_others():
        ready.wait()
        ask(orchestrator)

    threads = [threading.Thread(target=ask_with_others) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ask(orchestrator) == []
    assert guard.handed_out == 2


def test_a_report_that_meets_an_expired_token_is_still_handed_in(guard, connect, conductor_bench):
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    orchestrator = connect(guard.address, KEY, SECRET)
    (delivery,) = orchestrator.poll([first.task_name], worker_id="w")
    guard.expire()
    assert orchestrator.report(delivery, completed()).accepted


@pytest.mark.parametrize("login", [(None, None), (KEY, "the-wrong-secret"), ("who", SECRET)])
def test_without_the_right_key_nothing_is_answered_and_the_settings_are_named(
    guard, connect, login
):
    for call in everything(connect(guard.address, *login)):
        with pytest.raises(OrchestratorAccessError) as refused:
            call()
        assert "CONDUCTOR_AUTH_KEY" in refused.value.fix
        assert "CONDUCTOR_AUTH_SECRET" in refused.value.fix
        assert not any(secret in str(refused.value) for secret in (SECRET, "the-wrong-secret"))


def test_a_key_for_a_server_that_asks_for_none_is_told_so(conductor_server, connect):
    with pytest.raises(OrchestratorAccessError, match="no tokens") as refused:
        ask(connect(conductor_server, KEY, SECRET))
    assert "unset CONDUCTOR_AUTH_KEY" in refused.value.fix
    assert SECRET not in str(refused.value)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def tls(conductor_server, authority):
    files = authority / "cert.pem", authority / "key.pem"
    with KeyGuard(conductor_server, wants_key=False, certificate=files) as guard:
        yield guard


def test_a_server_with_a_certificate_of_our_own_authority_is_believed(tls, authority, connect):
    orchestrator = connect(tls.address, ca_file=authority / "ca.pem")
    assert tls.address.startswith("https://")
    for _ in range(2):
        assert ask(orchestrator) == []


def test_without_the_authority_it_is_not_and_the_setting_is_named(tls, connect, tmp_path):
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    for ca_file in (None, stranger):
        with pytest.raises(OrchestratorUnavailableError, match="certificate") as refused:
            ask(connect(tls.address, ca_file=ca_file))
        assert "PERAGO_CONDUCTOR_CA_FILE" in refused.value.fix


# --- what networks do -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        drop_request,
        drop_answer,
        cut_answer(1),
        answer(500, b"<h1>oh no</h1>", {"Content-Type": "text/html"}),
        answer(502),
        answer(503, b"busy"),
        answer(429),
        answer(200, b'[{"taskId": "t-', {"Content-Type": "application/json"}),
    ],
)
def test_a_question_that_is_not_answered_is_told_as_unavailable(wire, through, fault):
    for call in everything(through):
        wire.clear()
        wire.on(fault, times=None)
        with pytest.raises(OrchestratorUnavailableError, match=wire.endpoint):
            call()
    wire.clear()
    assert ask(through) == []


def test_a_question_that_is_answered_too_late_is_told_as_unavailable(wire, through, connect):
    impatient = connect(f"{wire.endpoint}/api", timeouts=Timeouts(answer=0.3))
    wire.on(delay(10), times=None)
    for call in everything(impatient):
        with pytest.raises(OrchestratorUnavailableError, match=wire.endpoint):
            call()
    wire.clear()
    assert ask(through) == []


def test_an_answer_cut_in_the_middle_is_no_answer(wire, through, conductor_bench):
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    attempt = take(conductor_bench, first).attempt
    wire.on(cut_answer(100), path="/tasks")
    with pytest.raises(OrchestratorUnavailableError):
        through.reload(attempt)
    assert through.reload(attempt).status is TaskStatus.IN_PROGRESS


def test_a_connection_that_the_server_gave_up_is_replaced_without_a_word(wire, through):
    ask(through)
    wire.on(set_header("Connection", "close"))
    for _ in range(3):
        assert ask(through) == []


def test_a_read_on_a_connection_that_breaks_is_asked_once_more(wire, through, conductor_bench):
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    attempt = take(conductor_bench, first).attempt
    through.reload(attempt)
    wire.on(drop_request, path="/tasks")
    assert through.reload(attempt).status is TaskStatus.IN_PROGRESS
    assert not wire.unfired


def test_a_poll_is_never_repeated_by_itself_for_what_it_took_would_be_lost(wire, through):
    ask(through)
    wire.clear()
    wire.on(drop_answer, path="/poll/")
    with pytest.raises(OrchestratorUnavailableError, match="polling for"):
        ask(through)
    assert wire.counts(path="/poll/") == 1


def test_what_was_polled_before_something_went_wrong_is_not_lost(wire, through, conductor_bench):
    one, two = step("one"), step("two")
    conductor_bench.start(one, workspace=workspace())
    wire.on(drop_request, path=f"/poll/batch/{two.task_name}", times=None)
    polled = through.poll([one.task_name, two.task_name], worker_id="w", limit=2)
    assert [delivery.attempt.task_name for delivery in polled] == [one.task_name]


def test_a_report_whose_answer_is_lost_is_accepted_when_it_is_repeated(
    wire, through, conductor_bench
):
    first = step("first")
    run_id = conductor_bench.start(first, workspace=workspace())
    delivery = take(conductor_bench, first, worker_id="w")
    wire.on(drop_answer, method="POST", path="/api/tasks$")
    with pytest.raises(OrchestratorUnavailableError):
        through.report(delivery, completed())
    assert through.report(delivery, completed()).accepted
    assert conductor_bench.run_status(run_id).value == "COMPLETED"


def test_a_report_that_can_not_be_read_back_is_not_told_as_accepted(wire, through, conductor_bench):
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    delivery = take(conductor_bench, first, worker_id="w")
    wire.on(answer(500), method="GET", path="/api/tasks/", times=None)
    with pytest.raises(OrchestratorUnavailableError):
        through.report(delivery, completed())
    wire.clear()
    assert through.report(delivery, completed()).accepted


def test_a_heartbeat_that_can_not_be_read_back_did_not_succeed(wire, through, conductor_bench):
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    delivery = take(conductor_bench, first, worker_id="w")
    wire.on(answer(503), method="GET", path="/tasks", times=None)
    with pytest.raises(OrchestratorUnavailableError):
        through.heartbeat(delivery)
    wire.clear()
    assert through.heartbeat(delivery)


def test_a_heartbeat_waits_less_long_for_an_answer_than_anything_else(
    wire, connect, conductor_bench, monkeypatch
):
    monkeypatch.setattr(adapter, "HEARTBEAT_ANSWER_SECONDS", 0.2)
    orchestrator = connect(f"{wire.endpoint}/api")
    first = step("first")
    conductor_bench.start(first, workspace=workspace())
    delivery = take(conductor_bench, first, worker_id="w")
    update = {"method": "POST", "path": "/api/tasks$"}
    wire.on(delay(600), **update)  # never arrives: it would undo the report
    wire.on(delay(1.5), **update)
    with pytest.raises(OrchestratorUnavailableError, match="extending the lease"):
        orchestrator.heartbeat(delivery)
    assert orchestrator.report(delivery, completed()).accepted
