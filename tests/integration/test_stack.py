"""``perago stack`` with the real servers: up, down, and whatever comes between.

What one server shows is tried with lakeFS alone, which starts sooner.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from base64 import b64encode
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.conductor import STARTS_SOONER

from perago.errors import RuntimeConfigError
from perago.settings import load_settings
from perago.stack import conductor
from perago.stack.processes import process_of
from perago.stack.stack import down, status
from perago.stack.test_server import start_conductor, start_lakefs

PERAGO = Path(sys.executable).with_name("perago")
_OURS = ("LAKECTL_", "LAKEFS_", "CONDUCTOR_", "PERAGO_")


@pytest.fixture
def project(tmp_path, monkeypatch, lakefs_binaries):
    """An empty directory without settings; whatever stack is up there in the end is taken down."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(_OURS) and name != "PERAGO_TOOLS":
            monkeypatch.delenv(name)
    yield tmp_path
    down(tmp_path / ".perago" / "stack", print, delete_data=True)


@pytest.fixture
def stack(project):
    """Run a stack command to its end; what it printed, as JSON."""

    def run(*arguments, code=0):
        ended = subprocess.run(
            [PERAGO, "stack", *arguments, "--json"], capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout)

    return run


def ask(method, path, body=None):
    """The status of a request to the server that the settings name, as its user."""
    settings = load_settings()
    secret = settings.lakefs_secret_access_key.get_secret_value()
    user = b64encode(f"{settings.lakefs_access_key_id}:{secret}".encode()).decode()
    connection = HTTPConnection(settings.lakefs_endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request(
            method,
            f"/api/v1{path}",
            body=json.dumps(body) if body else None,
            headers={"Authorization": f"Basic {user}", "Content-Type": "application/json"},
        )
        return connection.getresponse().status
    finally:
        connection.close()


def make_repository(name):
    namespace = f"{load_settings().lakefs_storage_namespace}/{name}"
    assert ask("POST", "/repositories", {"name": name, "storage_namespace": namespace}) == 201


def test_up_starts_a_server_that_settings_find_and_a_second_up_leaves_alone(project, stack):
    first = stack("up", "lakefs")
    assert first["started"] == ["lakefs"]
    (server,) = first["servers"]
    assert server["state"] == "running"
    assert server["endpoint"] == load_settings().lakefs_endpoint
    assert server["endpoint"].startswith("http://127.0.0.1:")
    assert ask("GET", "/user") == 200

    again = stack("up", "lakefs")
    assert again["started"] == []
    assert again["servers"][0]["pid"] == server["pid"]


def test_status_tells_and_its_exit_code_too(project, stack):
    assert stack("status", "lakefs", code=1)["servers"][0]["state"] == "stopped"
    stack("up", "lakefs")
    (server,) = stack("status", "lakefs")["servers"]
    assert server["version"] == "1.84.0"
    assert server["disk_bytes"] > 0
    os.kill(server["pid"], signal.SIGSTOP)
    assert stack("status", "lakefs", code=1)["servers"][0]["state"] == "not answering"
    os.kill(server["pid"], signal.SIGCONT)


def test_down_stops_it_keeps_its_data_and_the_next_up_has_the_same_address(project, stack):
    before = stack("up", "lakefs")["servers"][0]
    make_repository("songs")
    assert stack("down") == {"stopped": ["lakefs"], "deleted_data": False}
    assert process_of(before["pid"]) is None
    assert load_settings().lakefs_endpoint is None
    assert stack("down")["stopped"] == []

    after = stack("up", "lakefs")["servers"][0]
    assert after["endpoint"] == before["endpoint"]
    assert ask("GET", "/repositories/songs") == 200


def test_data_is_deleted_when_asked_and_the_next_stack_has_other_credentials(project, stack):
    stack("up", "lakefs")
    make_repository("songs")
    key = load_settings().lakefs_access_key_id
    assert stack("down", "--delete-data")["deleted_data"] is True
    assert not (project / ".perago" / "stack" / "lakefs").exists()

    stack("up", "lakefs")
    assert load_settings().lakefs_access_key_id != key
    assert ask("GET", "/repositories/songs") == 404


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="hung", marks=pytest.mark.slow),
    ],
)
def test_up_repairs_a_stack_whose_server_was(number, project, stack):
    before = stack("up", "lakefs")["servers"][0]
    make_repository("songs")
    process = process_of(before["pid"])
    os.kill(before["pid"], number)
    if number == signal.SIGKILL:
        assert process.wait(10)
        assert stack("status", "lakefs", code=1)["servers"][0]["state"] == "stopped"

    repaired = stack("up", "lakefs")
    assert repaired["started"] == ["lakefs"]
    assert repaired["servers"][0]["pid"] != before["pid"]
    assert repaired["servers"][0]["endpoint"] == before["endpoint"]
    assert not process.is_alive
    assert ask("GET", "/repositories/songs") == 200


def test_two_ups_at_once_start_one_server(project, stack):
    ups = [
        subprocess.Popen(
            [PERAGO, "stack", "up", "lakefs", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [json.loads(up.communicate(timeout=120)[0]) for up in ups]
    assert sorted(one["started"] for one in said) == [[], ["lakefs"]]
    assert len({one["servers"][0]["pid"] for one in said}) == 1


def test_ctrl_c_leaves_nothing_half_started(project):
    up = subprocess.Popen([PERAGO, "stack", "up", "lakefs"], stderr=subprocess.PIPE, text=True)
    place = project / ".perago" / "stack" / "lakefs"
    with up:
        started = _pid_on_record(place)
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 130
        assert "interrupted" in up.stderr.read()
    assert process_of(started) is None
    assert status(project / ".perago" / "stack")[0].state == "stopped"
    assert not (project / ".perago" / "stack" / "settings.env").exists()


def _pid_on_record(place):
    """The server's pid as soon as it is noted: at that moment it can't answer yet."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            process = json.loads((place / "state.json").read_text())["process"]
        except FileNotFoundError:
            continue
        if process:
            return process["pid"]
    pytest.fail("no server was started")


def test_a_server_that_cannot_start_is_reported_with_its_log_and_not_left(
    tmp_path, lakefs_binaries
):
    with pytest.raises(RuntimeConfigError, match="unknown driver: nope") as failure:
        start_lakefs(tmp_path / "server", config={"database": {"type": "nope"}})
    assert str(tmp_path / "server" / "server.log") in failure.value.fix


def test_an_existing_env_file_is_neither_changed_nor_needed(project, stack):
    (project / ".env").write_text("PERAGO_PUBLISH_FENCE=soft\n")
    stack("up", "lakefs")
    stack("down")
    assert (project / ".env").read_text() == "PERAGO_PUBLISH_FENCE=soft\n"


def test_a_server_named_elsewhere_wins_over_the_stack_as_a_whole(project, stack, monkeypatch):
    stack("up", "lakefs")
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "https://lakefs.example")
    assert load_settings().lakefs_endpoint == "https://lakefs.example"
    assert load_settings().lakefs_access_key_id is None


def test_secrets_are_in_private_files_alone(project):
    outputs = [
        subprocess.run([PERAGO, "stack", *words], capture_output=True, check=True)
        for words in (
            ["up", "lakefs"],
            ["status", "lakefs"],
            ["logs", "--lines", "1000"],
            ["up", "lakefs", "--json"],
        )
    ]
    place = project / ".perago" / "stack" / "lakefs"
    pid = json.loads((place / "state.json").read_text())["process"]["pid"]
    secrets = json.loads((place / "credentials.json").read_text())
    hidden = [secrets["secret_access_key"].encode(), secrets["encryption_key"].encode()]
    public = [one.stdout + one.stderr for one in outputs]
    public += [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    public.append((place / "server.log").read_bytes())
    assert [text for text in public for secret in hidden if secret in text] == []

    holding = [
        path
        for path in project.rglob("*")
        if path.is_file() and "data" not in path.parts and hidden[0] in path.read_bytes()
    ]
    assert sorted(path.name for path in holding) == [
        "config.yaml",
        "credentials.json",
        "settings.env",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}


def test_the_users_own_lakefs_variables_do_not_reach_the_server(project, stack, monkeypatch):
    monkeypatch.setenv("LAKEFS_LISTEN_ADDRESS", "0.0.0.0:1")
    assert stack("up", "lakefs")["servers"][0]["state"] == "running"


@pytest.mark.timeout(60)
def test_logs_shows_the_end_and_follows(project, stack):
    stack("up", "lakefs")
    log = project / ".perago" / "stack" / "lakefs" / "server.log"
    assert stack("logs")["logs"][0]["path"] == str(log)
    with log.open("a") as appended:
        appended.write("the last line so far\n")
    following = subprocess.Popen(
        [PERAGO, "stack", "logs", "--lines", "1", "--follow"], stdout=subprocess.PIPE, text=True
    )
    with following:
        try:
            assert following.stdout.readline() == "the last line so far\n"
            with log.open("a") as appended:
                appended.write("a line of its own\n")
            assert following.stdout.readline() == "a line of its own\n"
        finally:
            following.send_signal(signal.SIGINT)
        assert following.wait(30) == 130


def test_a_killed_server_comes_back_on_the_same_port_with_its_data(tmp_path, lakefs_binaries):
    with start_lakefs(tmp_path / "server") as server:
        before = server.endpoint, server.pid, server.access_key_id
        server.kill()
        assert not server.is_running
        server.restart()
        assert server.is_running
        assert (server.endpoint, server.access_key_id) == (before[0], before[2])
        assert server.pid != before[1]
        assert server.secret_access_key not in repr(server)
    assert not server.is_running


# --- Conductor beside it -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def conductor_program():
    """The program of Conductor. Who has none can't run these tests, and CI has to."""
    if not conductor.is_cached():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "Conductor isn't on this machine: `make servers` gets it"
        )


def conductor_address(project):
    settings = (project / ".perago" / "stack" / "settings.env").read_text()
    return next(
        line.partition("=")[2]
        for line in settings.splitlines()
        if line.startswith("CONDUCTOR_SERVER_URL=")
    )


def ask_conductor(address, method, path, body=None):
    """What the Conductor at this address answers, as JSON or text."""
    place = urlsplit(address)
    connection = HTTPConnection(place.netloc, timeout=60)
    try:
        connection.request(
            method,
            f"{place.path}{path}",
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        said = answer.read().decode()
        assert answer.status < 300, said
        return json.loads(said) if said.startswith(("{", "[")) else said
    finally:
        connection.close()


def start_workflow(address, name, *, lease_seconds):
    """A workflow of one task of the same name, both registered; its id."""
    task = {
        "name": name,
        "retryCount": 3,
        "retryDelaySeconds": 0,
        "timeoutSeconds": 0,
        "responseTimeoutSeconds": lease_seconds,
        "timeoutPolicy": "RETRY",
        "ownerEmail": "tests@example.com",
    }
    ask_conductor(address, "POST", "/metadata/taskdefs", [task])
    step = {"name": name, "taskReferenceName": name, "type": "SIMPLE"}
    workflow = {"name": name, "version": 1, "schemaVersion": 2, "tasks": [step]}
    workflow["ownerEmail"] = task["ownerEmail"]
    ask_conductor(address, "POST", "/metadata/workflow", workflow)
    return ask_conductor(address, "POST", f"/workflow/{name}", {})


def poll(address, name):
    """The task, once it is delivered."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if task := ask_conductor(address, "GET", f"/tasks/poll/{name}?workerid=test"):
            return task
    pytest.fail("no task was delivered")


def statuses(address, workflow):
    tasks = ask_conductor(address, "GET", f"/workflow/{workflow}")["tasks"]
    return [task["status"] for task in tasks]


def listening_on(port):
    """The addresses that somebody listens on at this port, as the kernel writes them."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    local = [fields[1].split(":") for fields in lines if fields[3] == "0A"]
    return {address for address, number in local if int(number, 16) == port}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_both_servers_go_up_are_repaired_go_down_and_keep_what_they_know(
    project, stack, monkeypatch, conductor_program
):
    monkeypatch.setenv("SPRING_APPLICATION_JSON", '{"conductor.db.type": "memory"}')
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1m")
    up = stack("up")
    assert up["started"] == ["lakefs", "conductor"]
    assert {one["name"]: one["state"] for one in up["servers"]} == {
        "lakefs": "running",
        "conductor": "running",
    }
    before = {one["name"]: one for one in up["servers"]}
    address = conductor_address(project)
    assert address == before["conductor"]["endpoint"] + "/api"
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening_on(urlsplit(address).port) <= loopback
    make_repository("songs")
    workflow = start_workflow(address, "stay", lease_seconds=60)
    assert stack("up")["started"] == []

    killed = process_of(before["conductor"]["pid"])
    killed.kill()
    found = {one["name"]: one["state"] for one in stack("status", code=1)["servers"]}
    assert found == {"lakefs": "running", "conductor": "stopped"}
    repaired = stack("up")
    assert repaired["started"] == ["conductor"]
    assert repaired["servers"][0]["pid"] == before["lakefs"]["pid"]
    assert conductor_address(project) == address
    assert statuses(address, workflow) == ["SCHEDULED"]

    logged = subprocess.run([PERAGO, "stack", "logs"], capture_output=True, text=True, check=True)
    assert [line for line in logged.stdout.splitlines() if line.startswith("==> ")] == [
        "==> lakefs",
        "==> conductor",
    ]
    assert [one["name"] for one in stack("logs", "conductor")["logs"]] == ["conductor"]

    assert stack("down")["stopped"] == ["conductor", "lakefs"]
    assert stack("up")["started"] == ["lakefs", "conductor"]
    assert conductor_address(project) == address
    assert poll(address, "stay")["workflowInstanceId"] == workflow
    assert ask("GET", "/repositories/songs") == 200
    stack("down", "--delete-data")
    assert not (project / ".perago" / "stack" / "conductor").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_conductor_that_cannot_start_is_reported_with_its_log_and_not_left(
    tmp_path, conductor_program
):
    with pytest.raises(RuntimeConfigError, match=r"conductor 3\.32\.3 stopped") as failure:
        start_conductor(
            tmp_path / "server",
            properties={"spring.datasource.url": "jdbc:none:"},
            java_options=STARTS_SOONER,
        )
    assert str(tmp_path / "server" / "server.log") in failure.value.fix
