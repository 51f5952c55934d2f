"""Bodies that do to their process what they please: the runner and the next attempt don't mind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

FAILING = {
    # what the body does: words of the reason its attempt failed for
    "exit_hard": "exited with code 3 during 'body'",
    "exit_soft": "SystemExit: enough",
    "segfault": "was ended by SIGSEGV during 'body'",
    "killed": "was ended by SIGKILL during 'body' (out of memory?)",
    "interrupted": "KeyboardInterrupt",
    "out_of_memory": "MemoryError",
    "removes_its_workspace": "FileNotFoundError",
}
HARMLESS = [
    "lingering_child",
    "forked_child",
    "escaping_fork",
    "much_output",
    "binary_output",
    "elsewhere",
    "nowhere",
    "lingering_thread",
    "changes_environment",
    "closes_descriptors",
    "closes_streams",
]


def prepare(project):
    project.add("bodies")
    project.seed()
    flags = project.directory / "flags"
    flags.mkdir()
    project.environment["FLAGS"] = str(flags)
    return project


def misbehaved(projects, directory, pipeline, ways):
    """One run of a pipeline in which each way to misbehave is followed by an ordinary step."""
    with projects(directory) as project:
        ended = prepare(project).run(f"bodies:{pipeline}")
        assert project.processes() == []
        project.assert_nothing_left()
        attempts = {way: [] for way in ways}
        for attempt, record in zip(ended["attempts"], project.only_run.attempts, strict=True):
            attempts[record.input["params"]["how"]].append(attempt)
        logs = {log.stem: log.read_bytes() for log in project.settings.logs.glob("*/*.log")}
        yield SimpleNamespace(
            directory=project.directory,
            attempts=attempts,
            published=project.published(),
            log_of=lambda attempt: logs[f"{attempt['reference']}-{attempt['retry']}"],
        )


@pytest.fixture(scope="module")
def failing(projects, tmp_path_factory):
    yield from misbehaved(projects, tmp_path_factory.mktemp("failing"), "failing", FAILING)


@pytest.fixture(scope="module")
def harmless(projects, tmp_path_factory):
    yield from misbehaved(projects, tmp_path_factory.mktemp("harmless"), "harmless", HARMLESS)


@pytest.fixture
def bodies(project):
    return prepare(project)


@pytest.mark.process
@pytest.mark.parametrize("how", FAILING)
def test_a_body_that_breaks_its_process_is_a_failed_attempt_and_is_retried(how, failing):
    failed, retried, after = failing.attempts[how]
    statuses = [failed["status"], retried["status"], after["status"]]
    assert statuses == ["FAILED", "COMPLETED", "COMPLETED"]
    assert FAILING[how] in failed["reason"]
    assert len(failed["reason"]) <= 500


@pytest.mark.process
@pytest.mark.parametrize("how", HARMLESS)
def test_what_a_body_leaves_behind_in_its_process_stays_its_own(how, harmless):
    misbehaving, after = harmless.attempts[how]
    assert (misbehaving["status"], after["status"]) == ("COMPLETED", "COMPLETED")
    assert after["output"]["result"] == {"directory": str(harmless.directory), "environment": None}
    assert harmless.log_of(after) == b"printed afterwards\n"


@pytest.mark.process
def test_each_of_them_is_published_once(failing, harmless):
    assert len(failing.published) == 2 + 2 * len(FAILING)
    assert len(harmless.published) == 2 + 2 * len(HARMLESS)


@pytest.mark.process
def test_everything_a_body_prints_is_in_its_log_whatever_its_bytes(harmless):
    binary, much, unflushed = (
        harmless.log_of(harmless.attempts[how][0])
        for how in ("binary_output", "much_output", "closes_descriptors")
    )
    assert binary == b"\xff\xfe not text \x80\n\xc3\x28 neither\n"
    assert len(much) == 40_000 * 51
    assert unflushed == b"unflushed"


@pytest.mark.process
@pytest.mark.parametrize("how", ["hang", "hang_deaf"])
def test_a_body_that_hangs_past_its_time_is_stopped_and_retried(how, bodies):
    ended = bodies.run("bodies:with_retry", "--param", f"retried.how={how}")
    assert [attempt["status"] for attempt in ended["attempts"]] == ["TIMED_OUT", "COMPLETED"]
    assert "timeout.seconds=6" in ended["attempts"][0]["reason"]
    bodies.assert_nothing_left()
    assert bodies.processes() == []


@pytest.mark.process
def test_a_body_that_hangs_past_its_time_ends_the_run_if_its_policy_says_so(bodies):
    ended = bodies.run("bodies:without_retry", "--param", "given_up.how=hang", expect=1)
    assert ended["status"] == "TIMED_OUT"
    assert [attempt["status"] for attempt in ended["attempts"]] == ["TIMED_OUT"]
    assert "timeout.seconds=3" in ended["reason"]
    assert bodies.published() == [None, None]
    bodies.assert_nothing_left()
    assert bodies.processes() == []


def test_a_module_named_like_one_of_pythons_own_does_not_break_the_executor(chain):
    (chain.directory / "queue.py").write_text("raise RuntimeError('not the standard library')\n")
    assert chain.run("chain:chain")["status"] == "COMPLETED"
