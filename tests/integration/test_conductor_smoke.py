"""The smoke script on real servers: it verifies everything, and leaves nothing behind."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.lakefs import store_on

from perago.adapters.conductor.client import ConductorClient, ConductorConfig
from perago.adapters.conductor.http import api_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

SCRIPT = Path(__file__).parents[2] / "scripts" / "real_conductor_lakefs_smoke.py"
PATIENCE_SECONDS = 1200
CASES = [
    "Tasks and pipelines are registered as they are declared",
    "Local, no-op, read-only and workspace-free tasks complete, one of them at the second try",
    "A task that gives up ends its workflow, and what came before it stays",
    "A pre guardrail that the input violates ends the workflow before the body runs",
    "Input that isn't as declared fails with the field's name, and nothing is published",
    "The worker stops when it is asked to",
    "Afterwards",
]
OURS = ("PERAGO_", "LAKECTL_", "CONDUCTOR_")


@pytest.fixture
def alone(common_directory):
    """One smoke at a time: each looks for what any of them has left."""
    with (common_directory / "smoke.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def smoke(conductor_server, lakefs_server, tmp_path, alone):
    """Start the script with the servers named in ``.env``, as a person would."""
    started = []
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}

    def run(*arguments, leave_out=()):
        named = lakefs_server.settings | {"CONDUCTOR_SERVER_URL": conductor_server}
        lines = [f"{name}={value}\n" for name, value in named.items() if name not in leave_out]
        (tmp_path / ".env").write_text("".join(lines))
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            cwd=tmp_path,
            env=kept,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()  # it ends its worker then
        process.communicate()


@pytest.fixture
def left_over(conductor_server, lakefs_server):
    """What the smoke has left on either server."""
    store, api = store_on(lakefs_server), ConductorClient(ConductorConfig(conductor_server))

    def look():
        definitions = [
            one["name"]
            for kind in ("taskdefs", "workflow")
            for one in api.find(api_path("metadata", kind), doing="looking")
        ]
        return [
            name
            for name in (*store.repositories(), *definitions)
            if name.startswith("perago-smoke-")
        ]

    yield look
    store.close()
    api.close()


def test_every_line_of_the_verification_list_holds(smoke, left_over):
    out, err = (process := smoke()).communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, out + err
    assert err == ""
    assert [line for line in out.splitlines() if line in CASES] == CASES
    numbered = [line for line in out.splitlines() if line[:5].strip().rstrip(".").isdigit()]
    assert [int(line[:4]) for line in numbered] == list(range(1, len(numbered) + 1))
    assert all(". ✓ " in line for line in numbered)
    assert len(numbered) > 50
    assert out.splitlines()[-1] == f"{len(numbered)} verified, 0 failed"
    assert left_over() == []


def test_interrupted_it_cleans_up(smoke, left_over):
    process = smoke()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any("." in name for name in left_over()):  # a task of its own is registered
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, out + err
    assert out.splitlines()[-1].endswith("✓ no workflow or definition of any case is left")
    assert err == "interrupted; what was made is deleted\n"
    assert left_over() == []


def test_half_of_the_servers_is_not_enough(smoke):
    process = smoke(leave_out=("CONDUCTOR_SERVER_URL",))
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (2, "")
    assert "CONDUCTOR_SERVER_URL isn't set" in err
    assert "--stack" in err
