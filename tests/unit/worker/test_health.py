"""What a worker answers when it is asked how it is."""

import http.client
import socket
import threading
import time

import pytest

from perago.errors import OrchestratorUnavailableError, RuntimeConfigError
from perago.worker.events import (
    OrchestratorReachable,
    OrchestratorUnreachable,
)
from perago.worker.health import (
    METRICS_TYPE,
    STUCK_SECONDS,
    Endpoint,
    ServiceState,
    WorkerHealth,
    liveness_problem,
    parse_address,
    readiness_problem,
    serving,
)

FREE = "127.0.0.1:0"
WELL = ServiceState(ticked_at=100.0, executors_ready=2, orchestrator_answered=True)
AWAY = "orchestrator_unavailable"


def state(**changes):
    values = {"ticked_at": 100.0, "executors_ready": 2, "orchestrator_answered": True}
    return ServiceState(**values | changes)


# --- the verdicts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "later", "ill", "hindered"),
    [
        (state(), 1.0, None, None),
        (state(executors_ready=0), 1.0, None, "no executor is up"),
        (state(orchestrator_answered=False), 1.0, None, "hasn't answered yet"),
        (state(orchestrator_problem=AWAY), 1.0, None, AWAY),
        (state(stopping=True), 1.0, None, "stopping"),
        (state(), STUCK_SECONDS, "stood still for 30 s", "stood still for 30 s"),
        (state(stopping=True), STUCK_SECONDS, None, "stopping"),
    ],
)
def test_a_worker_is_well_and_ready_or_there_is_a_reason(given, later, ill, hindered):
    now = given.ticked_at + later
    for expected, verdict in (
        (ill, liveness_problem(given, now)),
        (hindered, readiness_problem(given, now)),
    ):
        assert (verdict is None) == (expected is None)
        assert expected is None or expected in verdict


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def ask():
    """Start an endpoint; ask it for a path."""
    started = []

    def start(given=None, metrics=None):
        shown = given or state(ticked_at=time.monotonic())
        endpoint = Endpoint(FREE, lambda: shown, metrics)
        endpoint.start()
        started.append(endpoint)
        return lambda path, method="GET": _ask(endpoint.port, path, method)

    yield start
    for endpoint in started:
        endpoint.stop()


def _ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_health_and_readiness_are_200_while_all_is_well(ask):
    asked = ask()
    assert asked("/health")[:2] == (200, "ok\n")
    assert asked("/ready")[:2] == (200, "ok\n")


def test_readiness_is_503_with_the_reason_while_the_orchestrator_is_away(ask):
    asked = ask(state(ticked_at=time.monotonic(), orchestrator_problem=AWAY))
    status, reason, _ = asked("/ready")
    assert status == 503
    assert AWAY in reason
    assert asked("/health")[0] == 200


def test_health_is_503_once_the_loop_stands_still(ask):
    status, reason, _ = ask(state(ticked_at=time.monotonic() - 2 * STUCK_SECONDS))("/health")
    assert status == 503
    assert "stood still" in reason


def test_metrics_are_given_as_prometheus_wants_them(ask):
    status, text, headers = ask(metrics=lambda: b"up 1\n")("/metrics?name=up")
    assert (status, text, headers["Content-Type"]) == (200, "up 1\n", METRICS_TYPE)


def test_metrics_are_404_with_the_reason_where_there_are_none(ask):
    status, reason, _ = ask()("/metrics")
    assert status == 404
    assert "perago-runtime[otel]" in reason


def test_any_other_path_is_404_and_says_what_there_is(ask):
    status, text, _ = ask()("/")
    assert status == 404
    assert "/health" in text


def test_head_is_answered_without_a_body(ask):
    status, body, headers = ask()("/health", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "3")


def test_the_answer_does_not_tell_the_python_version(ask):
    assert ask()("/health")[2]["Server"].strip() == "perago"


def test_a_client_that_says_nothing_keeps_nobody_else_waiting():
    endpoint = Endpoint(FREE, lambda: state(ticked_at=time.monotonic()), None)
    endpoint.start()
    with socket.create_connection(("127.0.0.1", endpoint.port)):
        assert _ask(endpoint.port, "/health")[0] == 200
        endpoint.stop()


def test_after_the_end_nobody_listens():
    endpoint = Endpoint(FREE, lambda: WELL, None)
    endpoint.start()
    port = endpoint.port
    endpoint.stop()
    with pytest.raises(ConnectionRefusedError):
        _ask(port, "/health")


# --- the address ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        ("9464", "127.0.0.1", 9464),
        (":9464", "127.0.0.1", 9464),
        ("0.0.0.0:9464", "0.0.0.0", 9464),  # noqa: S104 - a person wrote it
        ("localhost:0", "localhost", 0),
        ("[::1]:9464", "::1", 9464),
        (" 127.0.0.1:9464 ", "127.0.0.1", 9464),
    ],
)
def test_an_address_is_loopback_unless_another_one_is_written(text, host, port):
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost", "localhost:", "127.0.0.1:65536", "127.0.0.1:http", "127.0.0.1:-1"),
        *("http://127.0.0.1:9464", "::1:9464", "[127.0.0.1]:9464", "[:x:]:9464", "a b:1", "u@h:1"),
    ],
)
def test_what_is_no_address_is_refused_by_the_settings_name(text):
    with pytest.raises(RuntimeConfigError, match=r"PERAGO_LISTEN=") as refused:
        Endpoint(text, lambda: WELL, None)
    assert "127.0.0.1:9464" in refused.value.fix


def test_a_port_that_is_taken_is_refused_by_the_settings_name():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        endpoint = Endpoint(address, lambda: WELL, None)
        with pytest.raises(RuntimeConfigError, match=f"PERAGO_LISTEN='{address}'.*in use"):
            endpoint.start()


def test_a_host_that_is_not_this_machine_is_refused():
    endpoint = Endpoint("192.0.2.1:9464", lambda: WELL, None)
    with pytest.raises(RuntimeConfigError, match="can't listen there"):
        endpoint.start()


# --- with a service behind it ---------------------------------------------------------------------


class Service:
    def __init__(self):
        self.ticked_at, self.executors_ready, self.stopping = time.monotonic(), 0, False


def test_readiness_follows_a_service_from_its_start_to_its_end():
    health, service = WorkerHealth(), Service()

    def reason():
        return readiness_problem(health.state(), time.monotonic())

    assert reason() == "no executor is up"
    health.watch(service)
    service.executors_ready = 1
    assert reason() == "the orchestrator hasn't answered yet"
    health.observe(OrchestratorReachable())
    assert reason() is None
    health.observe(OrchestratorUnreachable(OrchestratorUnavailableError("not now")))
    assert AWAY in reason()
    health.observe(OrchestratorReachable())
    assert reason() is None
    service.stopping = True
    assert reason() == "stopping"


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_serving_answers_for_a_service_and_has_its_metrics(attempt_under):
    port = _free_port()
    with serving(f"127.0.0.1:{port}") as (watchers, show_state_of):
        service = Service()
        service.executors_ready = 1
        show_state_of(service)
        for watcher in watchers:
            watcher.observe(OrchestratorReachable())
            attempt_under(watcher)
        assert _ask(port, "/ready")[0] == 200
        assert "perago_attempts_total" in _ask(port, "/metrics")[1]
    with pytest.raises(ConnectionRefusedError):
        _ask(port, "/health")


def test_serving_nowhere_starts_no_thread():
    before = threading.active_count()
    with serving(None):
        assert threading.active_count() == before


def test_serving_at_no_address_leaves_nothing_open():
    before = threading.active_count()
    with pytest.raises(RuntimeConfigError), serving("nowhere"):
        pass
    assert threading.active_count() == before
