"""Everything people type to use Conductor, on real servers and with a real worker."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
from support.conductor import ConductorBench
from support.http_servers import KEY, SECRET, KeyGuard
from support.processes import until
from support.wire import FaultyWire, answer

from perago.model.attempt import Attempt, Execution, new_execution_id
from perago.operations import leftover_gc
from perago.settings import load_settings
from perago.wiring import open_lakefs

SERVED = Path(__file__).parents[1] / "support" / "tasks"
TASKS, UNSERVED = SERVED / "conductor_cli_tasks.py", SERVED / "conductor_cli_unserved.py"
WRITING, STUMBLING, WAITING = f"{TASKS}:writing", f"{TASKS}:stumbling", f"{UNSERVED}:waiting"
WHO = os.environ.get("PYTEST_XDIST_WORKER", "alone")
ON = ("--on", "conductor")
PERAGO = Path(sys.executable).with_name("perago")


@pytest.fixture(scope="module")
def worker(places, tmp_path_factory):
    """Serves the tasks of the one module, and not those of the other."""
    with places(tmp_path_factory.mktemp("cli")) as place:
        started = place.worker(TASKS, jobs=2)
        started.wait_for("serving")
        yield started


@pytest.fixture
def servers(project, conductor_server, lakefs_server, monkeypatch):
    """The servers that commands with --on conductor find."""
    for name, value in lakefs_server.settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", conductor_server)


@pytest.fixture
def bench(servers, conductor_server):
    opened = ConductorBench(conductor_server)
    yield opened
    opened.close()


@pytest.fixture
def store(servers):
    opened = open_lakefs(load_settings(store="lakefs"))
    yield opened
    opened.close()


@pytest.fixture
def repository(bench):
    """A name that no other test uses; what is active there at the end is cancelled."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    yield name
    for run_id in bench.orchestrator.writers(name, "main"):
        bench.orchestrator.cancel(run_id, "the test is over")


class Follower:
    """A command that runs in a process of its own, to be interrupted."""

    def __init__(self, *words):
        self._process = subprocess.Popen(
            [str(word) for word in (PERAGO, *words)],
            env={**os.environ, "PERAGO_LOG_FORMAT": "json"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        self.lines.extend(line.decode() for line in iter(self._process.stderr.readline, b""))

    def wait_for(self, words):
        """The first line on standard error with these words in it."""
        return until(
            lambda: next((line for line in self.lines if words in line), None),
            lambda: f"{words!r} in {self.lines}",
            seconds=60,
        )

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        return self.end()

    def end(self):
        """Its exit code and what it printed."""
        out = self._process.stdout.read().decode()
        self._process.wait()
        self._reader.join()
        return self._process.returncode, out

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self.end()
        for stream in (self._process.stdout, self._process.stderr):
            stream.close()


@pytest.fixture
def follow(servers):
    with contextlib.ExitStack() as opened:

        def start(*words):
            follower = Follower(*words)
            opened.callback(follower.close)
            return follower

        yield start


# --- definitions ----------------------------------------------------------------------------------


def test_what_differs_is_told_field_by_field_then_pushed(perago, bench):
    words = ("register", TASKS, *ON, "--json")
    perago(*words)
    assert perago(*words, "--dry-run").json["ok"]
    name = f"{WHO}.cli.write"
    bench.definitions.push_task({**bench.definitions.task(name), "retryCount": 7})

    differs = perago(*words, "--dry-run")
    assert differs.code == 1
    (found,) = [one for one in differs.json["definitions"] if one["state"] != "same"]
    assert (found["name"], found["kind"], found["pushed"]) == (name, "task", False)
    assert found["differences"] == [{"field": "retryCount", "declared": 0, "registered": 7}]
    assert "retryCount is 7, not 0" in perago(*words[:-1], "--dry-run").out

    pushed = perago(*words)
    assert pushed.code == 0
    assert [one["name"] for one in pushed.json["definitions"] if one["pushed"]] == [name]
    assert bench.definitions.task(name)["retryCount"] == 0


def test_a_run_of_what_isnt_registered_as_declared_is_refused_with_the_command(
    perago, bench, repository
):
    perago("register", TASKS, *ON)
    name = f"{WHO}_cli_writing"
    changed = {**bench.definitions.workflow(name), "timeoutSeconds": 77}
    bench.definitions.push_workflow(changed)
    refused = perago("run", WRITING, "-r", repository, *ON, "--json")
    assert (refused.code, refused.error["code"]) == (4, "definition_differs")
    assert "timeoutSeconds is 77, not 0" in refused.error["message"]
    assert f"`perago register {WRITING} --on conductor`" in refused.error["fix"]


@pytest.mark.usefixtures("servers")
def test_a_lease_that_is_too_short_is_warned_of(perago, project):
    source = UNSERVED.read_text().replace(
        "workspace=WorkspaceSpec())",
        "workspace=WorkspaceSpec(), "
        "controls=TaskControls(timeout=TimeoutPolicy(response_seconds=2)))",
    )
    imports = source.replace(
        "import WorkspaceSpec", "import TaskControls, TimeoutPolicy, WorkspaceSpec"
    )
    (project / "hasty.py").write_text(imports.replace(".cli.unserved", ".cli.hasty"))
    answer = perago("register", "hasty", *ON, "--dry-run", "--json")
    (warning,) = answer.json["warnings"]
    assert "response_seconds=2" in warning


# --- running --------------------------------------------------------------------------------------


def test_a_pipeline_is_registered_started_and_followed_to_its_end(
    perago, worker, store, repository
):
    words = ("-r", repository, "--register", *ON, "--json")
    done = perago("run", WRITING, *words, "--param", "write.text=hello world")
    assert (done.code, done.json["status"]) == (0, "COMPLETED"), done.err
    first, last = done.json["attempts"]
    assert first["output"]["result"] == {"letters": 11}
    assert last["worker"] == worker.heard("serving")[0]["worker"]
    assert last["output"]["workspace"]["ref"] == store.head(repository, "main").id
    assert done.json["output_ref"] == store.head(repository, "main").id

    told = [json.loads(line) for line in done.err.splitlines()]
    ended = [one for one in told if one.get("step") == "attempt.ended"]
    assert [one["output_ref"] for one in ended] == [
        first["output"]["workspace"]["ref"],
        last["output"]["workspace"]["ref"],
    ]


@pytest.mark.usefixtures("worker")
def test_a_directory_is_imported_first(perago, store, repository):
    done = perago("run", WRITING, "--from", "data", "-r", repository, "--register", *ON)
    assert done.code == 0, done.err
    keys = {entry.key for entry in store.list_objects(repository, "main")}
    assert keys == {"raw/a.txt", "raw/b.txt", "text.txt", "tally.txt"}


@pytest.mark.usefixtures("worker")
def test_a_branch_of_anybodys_can_be_run_on(perago, store, repository):
    store.create_repository(repository)
    assert perago("run", WRITING, "-r", repository, "--register", *ON).code == 0


def test_a_second_run_on_the_branch_is_refused_and_names_the_first(
    perago, follow, repository, bench
):
    first = follow("run", WAITING, "-r", repository, "--register", *ON)
    first.wait_for("attempt.scheduled")
    (run,) = until(lambda: bench.orchestrator.writers(repository, "main"), "it in the index")
    second = perago("run", WAITING, "-r", repository, *ON, "--json")
    assert (second.code, second.error["code"]) == (4, "branch_busy")
    assert run in second.error["message"]
    assert f"`perago cancel {run} --on conductor`" in second.error["fix"]
    assert perago("import", "data", "-r", repository, *ON, "--json").error["code"] == "branch_busy"
    assert bench.orchestrator.writers(repository, "main") == [run]

    cancelled = perago("cancel", run, "--reason", "enough", *ON, "--json")
    assert (cancelled.code, cancelled.json["status"]) == (0, "TERMINATED")
    code, out = first.end()
    assert (code, "enough" in out) == (1, True)


def test_that_no_worker_is_there_is_told_and_ctrl_c_only_ends_the_following(
    follow, repository, bench
):
    follower = follow("run", WAITING, "-r", repository, "--register", *ON)
    warning = json.loads(follower.wait_for("no worker has polled"))["warning"]
    assert f"`perago start {UNSERVED}" in warning
    (run,) = until(lambda: bench.orchestrator.writers(repository, "main"), "it in the index")
    code, out = follower.interrupt()
    assert code == 130
    assert f"perago run --resume {run} --on conductor" in out
    assert f"perago cancel {run} --on conductor" in out
    assert bench.orchestrator.get(run).status == "RUNNING"


@pytest.mark.usefixtures("worker")
def test_resuming_follows_what_runs(follow, repository, project):
    gate = project / "gate"
    given = ("--param", f"write.gate={gate}", "--register", *ON)
    follower = follow("run", WRITING, "-r", repository, *given)
    started = json.loads(follower.wait_for("attempt.started"))
    follower.interrupt()
    again = follow("run", "--resume", started["run"], *ON, "--json")
    again.wait_for("attempt.started")
    gate.touch()
    code, out = again.end()
    assert code == 0
    assert (json.loads(out)["run"], json.loads(out)["status"]) == (started["run"], "COMPLETED")


@pytest.mark.usefixtures("worker", "servers")
def test_a_retry_is_told_and_resuming_tries_what_failed_once_more(perago, project):
    marker = project / "nowhere" / "marker"
    words = ("--param", f"stumble.marker={marker}", "--register", *ON, "--json")
    failed = perago("run", STUMBLING, *words)
    assert (failed.code, failed.json["status"]) == (1, "FAILED")
    told = [json.loads(line) for line in failed.err.splitlines()]
    turns = [(one["step"], one["retry"]) for one in told if one["step"] != "attempt.started"]
    assert [turn for turn in turns if turn != ("attempt.scheduled", 0)] == [
        ("attempt.ended", 0),  # scheduled it is only until the worker asks, perhaps not once seen
        ("attempt.scheduled", 1),
        ("attempt.ended", 1),
    ]
    (waiting,) = [one for one in told if one["step"] == "attempt.scheduled" and one["retry"]]
    assert "reason" not in waiting, "that of the attempt before isn't its own"

    marker.parent.mkdir()
    marker.touch()
    resumed = perago("run", "--resume", failed.json["run"], *ON, "--json")
    assert (resumed.code, resumed.json["status"]) == (0, "COMPLETED")
    assert [a["status"] for a in resumed.json["attempts"]] == ["FAILED", "FAILED", "COMPLETED"]
    ended = perago("run", "--resume", failed.json["run"], *ON, "--json")
    assert "nothing to resume" in ended.error["message"]


@pytest.mark.usefixtures("worker")
def test_a_conductor_that_is_away_for_a_while_is_told_and_waited_for(
    follow, repository, project, conductor_server, monkeypatch
):
    gate = project / "gate"
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        monkeypatch.setenv("CONDUCTOR_SERVER_URL", f"{wire.endpoint}/api")
        follower = follow(
            "run", WRITING, "-r", repository, "--param", f"write.gate={gate}", "--register", *ON
        )
        follower.wait_for("attempt.started")
        wire.on(path="/workflow/", fault=answer(503, b"down for repairs"), times=3)
        follower.wait_for("down for repairs")
        follower.wait_for("answers again")
        gate.touch()
        code, _ = follower.end()
    assert code == 0
    assert not wire.unfired


@pytest.mark.usefixtures("worker", "servers")
def test_on_a_terminal_a_retry_is_seen_as_it_waits_runs_and_ends(project):
    shown = _on_a_terminal(
        "run", STUMBLING, "--param", f"stumble.marker={project / 'marker'}", "--register", *ON
    )
    frames = [
        "running on",
        "FAILED: task_failed: stumbled",
        "retry 1",
        "trying again in",
        "COMPLETED",
    ]
    missing = [words for words in frames if words not in shown]
    assert missing == [], shown


def _on_a_terminal(*words):
    """All that a command writes to a terminal, without what moves the cursor about."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [str(word) for word in (PERAGO, *words)],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(child)
    written = b""
    with contextlib.suppress(OSError):  # so ends a terminal that nobody writes to any more
        while data := os.read(parent, 65536):
            written += data
    os.close(parent)
    assert process.wait() == 0, written.decode(errors="replace")
    return written.decode(errors="replace")


# --- looking --------------------------------------------------------------------------------------


def test_runs_and_what_their_tasks_printed_are_shown(perago, worker, repository):
    run = perago("run", WRITING, "-r", repository, "--register", *ON, "--json").json["run"]
    listed = perago("runs", "--limit", 50, *ON, "--json").json["runs"]
    (found,) = [one for one in listed if one["id"] == run]
    assert (found["repository"], found["steps_done"], found["steps_total"]) == (repository, 2, 2)
    assert run[:8] in perago("runs", "--limit", 50, *ON).out

    shown = perago("runs", run[:13], "--logs", *ON, "--json").json
    assert [a["worker"] for a in shown["attempts"]] == [worker.heard("serving")[0]["worker"]] * 2
    (log, *_) = shown["logs"]
    assert "writing hello" in [line["line"] for line in log["lines"]]
    assert "writing hello" in perago("runs", run, "--logs", *ON).out


@pytest.mark.usefixtures("servers")
def test_a_run_that_isnt_there_is_exit_code_3(perago):
    for words in (("runs", "0000"), ("cancel", str(uuid.uuid4())), ("recover", "0000")):
        answer = perago(*words, *ON, "--json")
        assert (answer.code, answer.error["code"]) == (3, "run_not_found")


# --- recovering -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_after_a_stop_a_new_run_goes_on_from_the_head_and_says_what_it_leaves(
    perago, follow, store, repository, project
):
    gate = project / "gate"
    given = ("--param", f"write.gate={gate}", "--param", "write.text=four", "--register", *ON)
    follower = follow("run", WRITING, "-r", repository, *given)
    run = json.loads(follower.wait_for("attempt.started"))["run"]
    active = perago("recover", run, *ON, "--json")
    assert (active.code, active.error["code"]) == (4, "branch_busy")
    assert f"`perago cancel {run} --on conductor`" in active.error["fix"]

    by_hand = perago("import", "data", "-r", repository, "--on", "lakefs", "--json").json["commit"]
    gate.touch()
    code, out = follower.end()
    assert code == 1
    assert f"perago recover {run[:8]} --on conductor" in out

    looked = perago("recover", run, "--dry-run", *ON, "--json").json
    assert (looked["head"], looked["leads_back"], looked["run"]) == (by_hand, True, None)
    assert [commit["message"] for commit in looked["since"]] == ["import of data"]
    assert store.head(repository, "main").id == by_hand

    done = perago("recover", run, *ON, "--json")
    assert (done.code, done.json["run"]["status"]) == (0, "COMPLETED"), done.err
    assert done.json["run"]["workspace"]["ref"] == by_hand
    assert done.json["run"]["attempts"][0]["output"]["result"] == {"letters": 4}
    assert perago("recover", done.json["run"]["run"], *ON).code == 1, "it needs no recovery"


# --- upkeep ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_gc_asks_conductor_which_attempts_have_ended(perago, store, repository, monkeypatch):
    run = perago("run", WRITING, "-r", repository, "--register", *ON, "--json").json
    ended = _staging_branch(store, repository, run["attempts"][0]["task_id"])
    unknown = _staging_branch(store, repository, str(uuid.uuid4()))
    young = [f"{repository}/{name}" for name in (ended, unknown)]

    def collected():
        answer = perago("gc", *ON, "--json").json
        return [
            sorted(name for name in answer[kind] if name.startswith(repository))
            for kind in ("staging_branches", "too_young")
        ]

    assert collected() == [[], sorted(young)]
    monkeypatch.setattr(leftover_gc, "ENDED_SECONDS", 0)
    assert collected() == [[f"{repository}/{ended}"], [f"{repository}/{unknown}"]]


def _staging_branch(store, repository, task_id):
    attempt = Attempt("run", "write", 1, 0, task_id, 0, "cli.write")
    name = Execution(attempt, new_execution_id()).staging_branch
    store.create_branch(repository, name, store.head(repository, "main").id)
    return name


def _checks(answer):
    return {one["name"]: one for one in answer.json["checks"]}


@pytest.mark.usefixtures("worker", "servers")
def test_doctor_finds_servers_definitions_and_workers_well(perago):
    perago("register", TASKS, *ON)
    answer = perago("doctor", TASKS, *ON, "--json")
    found = _checks(answer)
    failed = {name for name, check in found.items() if check["verdict"] == "fail"}
    assert failed <= {"single writer"}, answer.out  # other tests' workflows may be two on a branch
    for name in ("Conductor", "Conductor version", "Conductor clock", "definitions", "lease"):
        assert found[name]["verdict"] == "ok", found[name]
    assert found["Conductor version"]["detail"] == "3.32.3"


@pytest.mark.usefixtures("servers")
def test_doctor_names_what_isnt_registered_and_what_has_no_worker(perago, project):
    source = UNSERVED.read_text().replace("unserved", f"u{uuid.uuid4().hex[:8]}")
    (project / "strangers.py").write_text(source.replace("_cli_waiting", uuid.uuid4().hex))
    answer = perago("doctor", "strangers", *ON, "--json")
    found = _checks(answer)
    assert answer.code == 1
    assert found["definition"]["fix"] == "`perago register strangers --on conductor`"
    assert found["worker"]["fix"] == "`perago start strangers --on conductor`"
    assert found["worker"]["verdict"] == "warn"


def test_doctor_sees_two_workflows_on_one_branch(perago, bench, repository, follow):
    follower = follow("run", WAITING, "-r", repository, "--register", *ON)
    first = json.loads(follower.wait_for("attempt.scheduled"))["run"]
    follower.interrupt()
    given = {"input": bench.api.read(f"/workflow/{first}", doing="reading")["input"]}
    plan = bench.orchestrator.get(first).plan
    second = bench.start_as_somebody_else(plan, given)
    until(lambda: len(bench.orchestrator.writers(repository, "main")) == 2, "both in the index")
    answer = perago("doctor", *ON, "--json")
    details = [one for one in answer.json["checks"] if one["name"] == "single writer"]
    (found,) = [one for one in details if repository in one["detail"]]
    assert (answer.code, found["verdict"]) == (1, "fail")
    assert first in found["detail"]
    assert second in found["detail"]


@pytest.fixture
def misdirect(servers, conductor_server, lakefs_server, monkeypatch):
    """Have commands look for Conductor in a wrong place."""
    addresses = {
        "nothing is there": "http://127.0.0.1:9/api",
        "without the path": conductor_server.removesuffix("/api"),
        "lakeFS": f"{lakefs_server.endpoint}/api",
    }
    return lambda wrong: monkeypatch.setenv("CONDUCTOR_SERVER_URL", addresses[wrong])


@pytest.mark.parametrize(
    ("wrong", "check", "fix"),
    [
        ("nothing is there", "Conductor", "check that Conductor is running"),
        ("without the path", "Conductor address", "it ends with /api"),
        ("lakeFS", "Conductor address", "it ends with /api"),
    ],
)
def test_doctor_tells_wrong_addresses_apart(perago, misdirect, wrong, check, fix):
    misdirect(wrong)
    answer = perago("doctor", *ON, "--json")
    failed = [one for one in answer.json["checks"] if one["verdict"] == "fail"]
    assert (answer.code, [one["name"] for one in failed]) == (1, [check])
    assert fix in failed[0]["fix"]


@pytest.mark.usefixtures("servers")
def test_doctor_tells_a_wrong_key_from_a_right_one_and_shows_no_secret(
    perago, conductor_server, monkeypatch
):
    with KeyGuard(conductor_server) as guard:
        monkeypatch.setenv("CONDUCTOR_SERVER_URL", guard.address)
        monkeypatch.setenv("CONDUCTOR_AUTH_KEY", KEY)
        monkeypatch.setenv("CONDUCTOR_AUTH_SECRET", "another-secret")
        wrong = perago("doctor", *ON, "--json")
        assert _checks(wrong)["Conductor key"]["verdict"] == "fail"
        assert "another-secret" not in wrong.out + wrong.err
        monkeypatch.setenv("CONDUCTOR_AUTH_SECRET", SECRET)
        right = perago("doctor", *ON, "--json")
        assert "knows our key" in _checks(right)["Conductor"]["detail"]
        assert SECRET not in right.out + right.err + perago("doctor", *ON).out


# --- all of it ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("servers", "small_spark")
def test_the_demo_runs_there_with_a_crash_and_a_worker_of_its_own(perago, project):
    answer = perago("demo", "--rows", 500, *ON, "--json")
    assert (answer.code, answer.json["status"]) == (0, "COMPLETED"), answer.err
    ended = [(a["reference"], a["status"]) for a in answer.json["attempts"]]
    assert ended == [
        ("songs_ingest", "COMPLETED"),
        ("songs_clean", "FAILED"),
        ("songs_clean", "COMPLETED"),
        ("songs_rank", "COMPLETED"),
        ("songs_report", "COMPLETED"),
    ]
    assert "executor_lost" in answer.json["attempts"][1]["reason"]
    assert Path(answer.json["report"]).is_file()
    place = ("-r", answer.json["repository"], *ON, "--home", "perago-demo", "--json")
    messages = [c["message"] for c in perago("history", *place).json["commits"]]
    assert messages[:5] == [
        "songs.report",
        "songs.rank",
        "songs.clean, retry 1",
        "songs.ingest",
        "install the perago fence",
    ]
    assert "stopped after 5 attempts" in (project / "perago-demo" / "worker.log").read_text()
