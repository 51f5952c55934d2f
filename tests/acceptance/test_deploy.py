"""What deploy/ holds fits what there is: its files parse, and what they name exists."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest

from perago.cli.main import cli, exit_code_for
from perago.errors import RuntimeConfigError
from perago.model.controls import PublishBudget
from perago.settings import SECRETS, Settings, variable_of
from perago.worker.health import parse_address

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "perago-worker@.service"
INSTANCE = "songs"
DEFAULT_GRACE = PublishBudget.default_for(0).worker_shutdown_grace_seconds


def _start_options():
    context = click.Context(cli, info_name="perago")
    command = cli.get_command(context, "start")
    assert command is not None, "perago start"
    return {flag for parameter in command.params for flag in parameter.opts}


# --- systemd --------------------------------------------------------------------------------------


@pytest.fixture
def service():
    unit = configparser.RawConfigParser(strict=True, interpolation=None, delimiters=("=",))
    unit.optionxform = str
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    return unit["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    text = UNIT.read_text(encoding="utf-8")
    here = tmp_path / UNIT.name  # with a command that is there, as systemd looks for it
    here.write_text(text.replace("/opt/perago/bin/perago", sys.executable), encoding="utf-8")
    verdict = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (verdict.returncode, verdict.stderr) == (0, "")


def test_the_unit_starts_a_worker_with_arguments_from_its_environment(service):
    program, subcommand, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, subcommand) == ("perago", "start")
    assert arguments == ["$WORKER_ARGUMENTS"]
    assert "WORKER_ARGUMENTS" in _example()


def test_stopping_reaches_the_supervisor_alone_and_waits_longer_than_its_grace(service):
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > DEFAULT_GRACE


def test_an_executor_without_memory_does_not_take_the_worker_with_it(service):
    assert service["OOMPolicy"] == "continue"


def test_a_worker_is_restarted_unless_its_settings_are_wrong(service):
    assert service["Restart"] == "on-failure"
    wrong = exit_code_for(RuntimeConfigError("a setting is wrong"))
    assert int(service["RestartPreventExitStatus"]) == wrong


def test_the_unit_keeps_tasks_from_everything_but_their_state(service):
    assert service["User"] not in ("root", "0", "")
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    variables = dict(each.split("=", 1) for each in service["Environment"].split())
    assert variables["PERAGO_HOME"].removeprefix("%S/") == service["StateDirectory"]


# --- the environment ------------------------------------------------------------------------------


def _example():
    lines = (DEPLOY / "worker.env.example").read_text(encoding="utf-8").splitlines()
    named = [re.fullmatch(r"#?([A-Z_]+)=(.*)", line) for line in lines]
    return {match[1]: match[2] for match in named if match}


def test_every_variable_of_the_example_is_one_that_is_read():
    known = {variable_of(field) for field in Settings.model_fields}
    read_elsewhere = {"WORKER_ARGUMENTS", "OTEL_EXPORTER_OTLP_ENDPOINT"}
    assert set(_example()) - known == read_elsewhere


def test_the_example_names_the_secrets_and_holds_none():
    example = _example()
    assert set(example) >= SECRETS
    assert {example[name] for name in SECRETS} == {""}


def test_the_examples_arguments_are_options_of_perago_start():
    module, *options = _example()["WORKER_ARGUMENTS"].split()
    assert module.isidentifier()
    assert {option for option in options if option.startswith("-")} <= _start_options()


# --- the container --------------------------------------------------------------------------------


@pytest.fixture
def instructions():
    """The Containerfile's instructions, each with its arguments as one line."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    known = {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "VOLUME", "HEALTHCHECK"}
    assert {word for word, _ in lines} <= known | {"STOPSIGNAL", "ENTRYPOINT", "CMD"}
    return [(word, rest.strip()) for word, rest in lines]


def _only(instructions, word):
    (found,) = [rest for each, rest in instructions if each == word]
    return found


@pytest.fixture
def environment(instructions):
    return dict(setting.split("=", 1) for setting in shlex.split(_only(instructions, "ENV")))


def test_the_image_is_installed_by_hash_and_from_nowhere_else(instructions):
    installs = [rest for word, rest in instructions if word == "RUN" and "pip install" in rest]
    assert all(("--require-hashes" in run) != ("--no-index" in run) for run in installs)
    assert len(installs) == 2


def test_what_the_image_copies_is_there_and_not_ignored(instructions):
    admitted = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        rest.split()[0]
        for word, rest in instructions
        if word == "COPY" and not rest.startswith("--from=")
    ]
    assert admitted == ["*", *(f"!{path}" for path in sorted(copied))]
    assert (ROOT / "requirements" / "worker.txt").is_file()
    assert "requirements/worker.txt" in copied


def test_the_image_starts_a_worker_that_nobody_stands_before(instructions):
    assert json.loads(_only(instructions, "ENTRYPOINT")) == ["perago", "start"]
    assert _only(instructions, "STOPSIGNAL") == "SIGTERM"
    assert _only(instructions, "USER") not in ("root", "0")


def test_the_image_keeps_state_on_its_volume(instructions, environment):
    volume = Path(_only(instructions, "VOLUME"))
    for name in ("PERAGO_HOME", "PERAGO_WORKSPACE_ROOT"):
        assert volume in Path(environment[name]).parents
    assert {name for name in environment if name.startswith("PERAGO_")} <= {
        variable_of(field) for field in Settings.model_fields
    }


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_images_health_check_asks_where_the_worker_listens(
    instructions, environment, answering, status, code
):
    _, _, command = _only(instructions, "HEALTHCHECK").partition("CMD ")
    program, *arguments = json.loads(command)
    assert program == "python"
    address = parse_address(environment["PERAGO_LISTEN"])
    asked = f"'{address.host}', {address.port}"
    assert asked in arguments[1]
    port = answering(status)
    arguments[1] = arguments[1].replace(asked, f"'127.0.0.1', {port}")
    checked = subprocess.run([sys.executable, *arguments], timeout=60, check=False)
    assert checked.returncode == code
    assert answering.paths == ["/health"]


@pytest.fixture
def answering():
    """Something that answers every request with one status, and notes what was asked for."""
    servers = []

    def start(status):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                start.paths.append(self.path)
                self.send_response(status)
                self.end_headers()

            def log_message(self, format, *args):  # noqa: A002
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        return server.server_port

    start.paths = []
    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


# --- the page -------------------------------------------------------------------------------------


def test_the_page_names_files_that_are_there_and_the_paths_the_unit_has():
    page = (ROOT / "docs" / "how-to" / "deploy-a-worker.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"(?:deploy|requirements)/[\w.@-]+\w", page)):
        assert (ROOT / path).is_file(), path
    unit = UNIT.read_text(encoding="utf-8").replace("%i", INSTANCE)
    for path in (f"/etc/perago/{INSTANCE}.env", f"/srv/perago/{INSTANCE}", "/opt/perago/bin/"):
        assert path in page
        assert path in unit


@pytest.mark.parametrize("wait", [r"TimeoutStopSec=(\d+)", r"Seconds: (\d+)", r"timeout (\d+)"])
def test_every_way_of_stopping_waits_longer_than_the_grace(wait):
    page = (ROOT / "docs" / "how-to" / "deploy-a-worker.md").read_text(encoding="utf-8")
    found = re.findall(wait, page + UNIT.read_text(encoding="utf-8"))
    assert found
    assert min(map(int, found)) > DEFAULT_GRACE
