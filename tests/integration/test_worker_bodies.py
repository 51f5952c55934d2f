"""Bodies that do to their process what they please, served to a real Conductor."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import slow_except
from support.processes import processes_with
from support.worker import attempts_of

from perago import pipeline
from perago.adapters.conductor.tasks import LOG_LIMIT

BODIES = Path(__file__).parents[1] / "faults" / "modules" / "bodies.py"
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
    "lingering_thread",
    "changes_environment",
    "closes_descriptors",
]


def bodies_noting_in(directory):
    """The module of the bodies; what each has done already is noted in that directory."""
    directory.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAGS", str(directory))
        spec = importlib.util.spec_from_file_location("bodies", BODIES)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def bodies(tmp_path):
    return bodies_noting_in(tmp_path / "flags")


def served(place, bodies):
    return place.worker(BODIES, FLAGS=bodies.FLAGS)


def misbehaved(places, directory, ways):
    """One workflow in which each way to misbehave is followed by an ordinary step."""
    bodies = bodies_noting_in(directory / "flags")
    steps = [
        step
        for way in ways
        for step in (bodies.misbehaving.with_params(how=way), bodies.after.with_params(how=way))
    ]
    with places(directory) as place:
        worker = served(place, bodies)
        run_id = place.start(pipeline(f"{bodies.WHO}_{directory.name}", steps))
        run = place.completed(run_id, seconds=240)
        worker.stop()
        place.assert_nothing_left()
        attempts = {way: [] for way in ways}
        for record in run.attempts:
            attempts[record.input["params"]["how"]].append(record)
        yield SimpleNamespace(
            directory=place.directory,
            attempts=attempts,
            published=place.published(),
            log_of=lambda record: "\n".join(
                text for _, text in place.conductor.orchestrator.task_logs(record.attempt.task_id)
            ),
        )


@pytest.fixture(scope="module")
def failing(places, tmp_path_factory):
    yield from misbehaved(places, tmp_path_factory.mktemp("failing"), FAILING)


@pytest.fixture(scope="module")
def harmless(places, tmp_path_factory):
    yield from misbehaved(places, tmp_path_factory.mktemp("harmless"), HARMLESS)


@pytest.mark.parametrize("how", FAILING)
def test_a_body_that_breaks_its_process_is_a_failed_attempt_and_is_retried(how, failing):
    failed, retried, after = failing.attempts[how]
    assert [failed.status, retried.status, after.status] == ["FAILED", "COMPLETED", "COMPLETED"]
    assert FAILING[how] in failed.reason
    assert len(failed.reason) <= 500


@pytest.mark.parametrize("how", HARMLESS)
def test_what_a_body_leaves_behind_in_its_process_stays_its_own(how, harmless):
    misbehaving, after = harmless.attempts[how]
    assert [misbehaving.status, after.status] == ["COMPLETED", "COMPLETED"]
    assert after.output["result"] == {"directory": str(harmless.directory), "environment": None}
    assert harmless.log_of(after) == "printed afterwards"


def test_each_of_them_is_published_once(failing, harmless):
    assert failing.published == ["misbehave", "after"] * len(FAILING)
    assert harmless.published == ["misbehave", "after"] * len(HARMLESS)


def test_of_much_output_conductor_has_the_end_and_is_told_where_the_rest_is(harmless):
    log = harmless.log_of(harmless.attempts["much_output"][0])
    first, *lines = log.splitlines()
    assert first.startswith("… the last 200 lines of 2,040,000 bytes; the rest is in ")
    assert lines[-1] == f"{39_999:050}"
    assert len(log) <= LOG_LIMIT
    path = first.partition("the rest is in ")[2].removesuffix(" on the worker")
    assert Path(path).stat().st_size == 2_040_000


def test_output_that_is_no_text_comes_to_conductor_as_far_as_it_is(harmless):
    log = harmless.log_of(harmless.attempts["binary_output"][0])
    assert log.splitlines() == ["\ufffd\ufffd not text \ufffd", "\ufffd( neither"]


@pytest.mark.parametrize("how", slow_except("hang", of=["hang", "hang_deaf"]))
def test_a_body_that_hangs_past_its_time_is_stopped_and_retried(how, place, bodies):
    worker = served(place, bodies)
    run = place.completed(
        place.start(pipeline(f"{bodies.WHO}_hanging", [bodies.retried.with_params(how=how)]))
    )
    assert attempts_of(run) == [("retried", "TIMED_OUT"), ("retried", "COMPLETED")]
    assert worker.wait_for("attempt.ended", status="LOST")["retry"] == 0
    assert len(worker.executors) == 1, "the one that hung is gone"
    assert len(processes_with("FLAGS", bodies.FLAGS)) == 3
    worker.stop()
    place.assert_nothing_left()


def test_a_body_that_hangs_past_its_time_ends_the_workflow_if_its_policy_says_so(place, bodies):
    worker = served(place, bodies)
    run = place.ended(
        place.start(pipeline(f"{bodies.WHO}_given_up", [bodies.given_up.with_params(how="hang")]))
    )
    assert run.status == "TIMED_OUT"
    assert attempts_of(run) == [("given_up", "TIMED_OUT")]
    worker.wait_for("attempt.ended", status="LOST")
    worker.stop()
    assert place.published() == []
    place.assert_nothing_left()
