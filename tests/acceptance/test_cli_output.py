"""Where output goes: to a terminal, to a reader that leaves early, to nowhere."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

# The runner is imported here so that it has its own way to the store before a test looks on.
import perago.worker.local_runner  # noqa: F401
from perago import wiring

PERAGO = Path(sys.executable).with_name("perago")
FULL = Path("/dev/full")


def _to_nobody(*arguments, closed):
    """The exit code of a command whose named streams lead into a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        streams |= dict.fromkeys(closed, pipe)
        return subprocess.run([PERAGO, *arguments], **streams, check=False).returncode


def _on_a_terminal(*arguments):
    """All that a command writes to a terminal, control sequences included."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([PERAGO, *arguments], stdout=theirs, stderr=theirs):
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 65536):
                written += chunk
        except OSError:  # Linux's way to say that the other side is closed
            pass
    os.close(ours)
    return written.decode()


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_run_goes_on_when_nobody_reads_about_it(project, queue, closed):
    assert _to_nobody("run", "songs_tasks", "--from", "data", closed=closed) == 0
    (run,) = queue.runs()
    assert run.status == "COMPLETED"


@pytest.mark.usefixtures("small_spark")
def test_so_does_the_demo_in_its_own_home(project, monkeypatch):
    monkeypatch.setenv("PERAGO_HOME", str(project / "elsewhere"))
    arguments = ("demo", "--rows", "50", "--no-crash")
    assert _to_nobody(*arguments, closed=("stdout", "stderr")) == 0
    assert (project / "perago-demo" / "songs-1-report.html").exists()
    assert not (project / "elsewhere").exists()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_run_goes_on_when_its_log_has_no_room(project, queue):
    with FULL.open("wb") as full:
        command = [PERAGO, "run", "songs_tasks", "--from", "data", "--json"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert ended.returncode == 0
    (run,) = queue.runs()
    assert run.status == "COMPLETED"


def test_a_command_keeps_its_exit_code_when_nobody_reads_its_output(perago):
    run = perago("run", "songs_tasks", "--from", "data", "--json").json["run"]
    assert _to_nobody("history", closed=("stdout",)) == 0
    assert _to_nobody("runs", run, "--logs", closed=("stdout",)) == 0
    assert _to_nobody("runs", "nothing", closed=("stderr",)) == 3
    assert _to_nobody("runs", "--nope", closed=("stderr",)) == 2


def test_a_terminal_shows_at_once_that_a_run_is_starting(project):
    written = _on_a_terminal("run", "songs_tasks", "--from", "data")
    assert "starting …" in written[:30]
    rows = written.index("songs_count")
    assert "\r\x1b[K" in written[:rows], "it makes room for what follows"
    assert "starting" in written[rows : written.index("songs_total")]


def test_a_long_command_is_not_broken_on_a_terminal(project):
    home = "a-directory-whose-name-alone-is-nearly-as-wide-as-the-terminal-is"
    written = _on_a_terminal("run", "songs_tasks", "--home", home)
    assert re.search(rf"perago recover [0-9a-f]{{8}} --home {home}", written)


def test_the_offered_command_goes_on(perago):
    stopped = perago("run", "songs_tasks", "--repository", "others", "--home", "elsewhere")
    assert stopped.code == 1
    offered = stopped.out.rpartition("then run: perago ")[2]
    there = ("--repository", "others", "--home", "elsewhere")
    assert perago("import", "data", "--branch", "main", *there).code == 0
    assert perago(*shlex.split(offered)).code == 0
    assert perago("runs", "--home", "elsewhere", "--json").json["runs"][0]["repository"] == "others"


def test_without_a_terminal_people_get_short_lines_without_color(project):
    failed = subprocess.run(
        [PERAGO, "run", "songs_tasks", "--from", "data", "--param", "count.fail=true"],
        capture_output=True,
        text=True,
        check=False,
    )
    heading, *lines = failed.stderr.splitlines()
    assert re.fullmatch(r"run [0-9a-f]{8}: songs, 2 steps, songs/main", heading)
    assert lines[0] == "▸ songs_count"
    assert re.match(r"✗ songs_count  [0-9.]+ s  FAILED", lines[1])
    for written in (failed.stdout, failed.stderr):
        assert "\x1b" not in written, "no color"
        assert "{" not in written, "no JSON"
        assert not re.search(r"[0-9a-f]{13}|[0-9a-f]{8}-[0-9a-f]{4}", written), "no whole ids"


@pytest.mark.parametrize("asked", [["--log-format", "json"], ["--json"], []])
def test_programs_get_json_lines_if_they_ask_for_them(perago, monkeypatch, asked):
    if not asked:
        monkeypatch.setenv("PERAGO_LOG_FORMAT", "json")
    ran = perago("run", "songs_tasks", "--from", "data", *asked)
    events = [json.loads(line) for line in ran.err.splitlines()]
    assert [e["reference"] for e in events if e["step"] == "attempt.ended"] == [
        "songs_count",
        "songs_total",
    ]


def test_a_reason_is_given_once_per_attempt(perago):
    failed = perago("run", "songs_tasks", "--from", "data", "--param", "count.fail=true")
    assert failed.out.count("was told to fail") == 1


@pytest.fixture
def still_open(monkeypatch):
    """What a command itself has opened and not closed; the runner it calls sees to its own."""
    remaining = []

    def noting(opening):
        def opened(*arguments, **options):
            resource = opening(*arguments, **options)
            close = resource.close

            def closing():
                close()
                remaining.remove(resource)

            monkeypatch.setattr(resource, "close", closing)
            remaining.append(resource)
            return resource

        return opened

    monkeypatch.setattr(wiring, "open_store", noting(wiring.open_store))
    monkeypatch.setattr(wiring, "open_queue", noting(wiring.open_queue))
    return remaining


@pytest.mark.usefixtures("small_spark")
@pytest.mark.parametrize(
    "arguments", [("run", "songs_tasks", "--from", "data"), ("demo", "--no-crash", "--rows", "50")]
)
def test_what_a_command_opens_is_closed_when_it_ends(perago, still_open, arguments):
    assert perago(*arguments).code == 0
    assert still_open == []
