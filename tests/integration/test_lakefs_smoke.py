"""The smoke script against a real server: it verifies everything, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.lakefs import store_on

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "real_lakefs_publication_protocol_smoke.py"
PATIENCE_SECONDS = 240
CASES = {
    "H == A: the workspace output is published by a merge",
    "parent(H) == A: the abandoned publication is replaced by a hard reset to C",
    "parent(H) != A: fails closed, with and without changes",
    "No-op, H == A: completed with A, and no empty commit",
    "No-op, parent(H) == A: the branch is relocated back to A, and no empty commit",
    "A precondition of merge fails: a hook of the repository refuses it",
    "A precondition of merge fails: the head moves after it was read as A",
    "A precondition of hard reset fails: the target has uncommitted objects",
    "A precondition of hard reset fails: the target is protected",
    "Afterwards",
}


@pytest.fixture
def start(lakefs_server, tmp_path):
    """Start the script with the server named in ``.env``, as a person would."""
    started = []
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERAGO_", "LAKECTL_"))}

    def run(*arguments, leave_out=()):
        settings = {k: v for k, v in lakefs_server.settings.items() if k not in leave_out}
        lines = [f"{name}={value}\n" for name, value in settings.items()]
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
        process.kill()
        process.communicate()


@pytest.fixture
def store(lakefs_server):
    opened = store_on(lakefs_server)
    yield opened
    opened.close()


def smoke_repositories(store):
    return [name for name in store.repositories() if name.startswith("perago-smoke-")]


def test_every_line_of_the_verification_list_holds(start, store):
    out, err = (process := start()).communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, out + err
    assert err == ""
    assert {line.partition("  [")[0] for line in out.splitlines()} >= CASES
    assert "✗" not in out
    verified = out.count("✓")
    assert verified > 100
    assert out.splitlines()[-1] == f"{verified} verified, 0 failed"
    assert smoke_repositories(store) == []


def test_in_a_repository_that_is_there_everything_stays_as_it_was(start, store):
    store.create_repository("somebodys")
    before = list(store.branches("somebodys"))
    without_namespace = ("PERAGO_LAKEFS_STORAGE_NAMESPACE",)
    process = start("--repository", "somebodys", "--json", leave_out=without_namespace)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, out + err
    document = json.loads(out)
    assert document["failed"] == 0
    skipped = {case["case"] for case in document["cases"] if case["skipped"]}
    assert skipped == {"A precondition of hard reset fails: the target is protected"}
    assert list(store.branches("somebodys")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up(start, store, number):
    process = start()
    until_the_first_case = next(line for line in process.stdout if "[soft]" in line)
    assert until_the_first_case
    assert len(smoke_repositories(store)) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (130, "interrupted; what was made is deleted\n")
    assert smoke_repositories(store) == []


def test_what_is_missing_is_named(start):
    process = start(leave_out=("PERAGO_LAKEFS_STORAGE_NAMESPACE",))
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (2, "")
    assert "--repository NAME, or set PERAGO_LAKEFS_STORAGE_NAMESPACE" in err
