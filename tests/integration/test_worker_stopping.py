"""How a worker stops: what runs is finished, or given back, or left to its lease."""

import signal
import time

import pytest
from support import slow_except
from support.processes import state_of, until
from support.tasks import worker_tasks
from support.wire import FaultyWire
from support.worker import HeldExchange, attempts_of

GROWN = ("grow_patiently", "COMPLETED")


def test_an_idle_one_ends_at_once(place, capsys):
    worker = place.worker(jobs=2)
    worker.wait_for("orchestrator.heard")
    until(lambda: len(worker.executors) == 2, "its executors")
    seconds = worker.stop()
    with capsys.disabled():
        print(f"\nSIGTERM to exit of an idle worker: {seconds:.2f} s")  # noqa: T201 - to be read
    assert seconds < 10, "two, where nothing else keeps the machine busy"
    assert worker.printed == "stopped after 0 attempts\n"
    place.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_what_runs_is_finished_and_nothing_more_is_taken(number, place):
    worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_patiently, jobs=2)
    until(lambda: place.is_configured(worker_tasks.count), "it to ask for something else")
    worker.send(number)
    until(lambda: not place.is_configured(worker_tasks.count), "it to stop asking for work")
    late = place.start(worker_tasks.counting)
    gate.touch()
    assert worker.end() == 0

    run = place.completed(run_id)
    assert attempts_of(run) == [GROWN]
    assert run.attempts[0].poll_count == 1
    assert [a.poll_count for a in place.run(late).attempts] == [0], place.story(place.run(late))
    assert worker.printed == "stopped after 1 attempt\n"
    place.assert_nothing_left()


def test_what_does_not_end_within_its_grace_is_given_back_and_costs_no_retry(place):
    worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_impatiently)
    seconds = worker.stop()
    assert seconds >= worker_tasks.GRACE_SECONDS
    assert worker.heard("attempt.ended", status="stopped (given back)")
    place.assert_nothing_left()

    gate.touch()
    assert_another_one_goes_on(place, run_id)


def test_a_second_signal_does_not_wait_for_the_grace(place):
    worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_patiently, listens=True)
    began = time.monotonic()
    worker.ask_to_stop()
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
    assert time.monotonic() - began < 20, "the grace is a minute"
    assert worker.heard("attempt.ended", status="stopped (given back)")

    gate.touch()
    assert_another_one_goes_on(place, run_id)


def assert_another_one_goes_on(place, run_id):
    """The same task, handed out once more, and no retry used up."""
    (before,) = place.run(run_id).attempts
    another = place.worker()
    (after,) = place.completed(run_id).attempts
    assert after.attempt == before.attempt
    assert (before.poll_count, after.poll_count) == (1, 2)
    assert after.worker_id == another.wait_for("serving")["worker"] != before.worker_id
    assert len(place.published()) == 1
    another.stop()
    place.assert_nothing_left()


def test_a_publication_under_way_is_finished(place):
    worker = place.worker(
        listens=True, PERAGO_FAILPOINTS=f"publish.cleared=stop-once:{place.fresh}"
    )
    run_id = place.start(worker_tasks.growing_patiently)
    executor = worker.stopped_executor()
    worker.wait_for("attempt.publishing")
    worker.ask_to_stop()
    worker.resume(executor)
    assert worker.end() == 0
    assert attempts_of(place.completed(run_id)) == [GROWN]
    place.assert_nothing_left()


@pytest.mark.parametrize(
    "failpoint", slow_except("publish.sent", of=["publish.cleared", "publish.sent", "report.ready"])
)
def test_a_publication_that_is_broken_off_is_left_to_its_lease(failpoint, place):
    worker = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
    run_id = place.start(worker_tasks.growing)
    worker.stopped_executor()
    worker.wait_for("attempt.publishing")
    worker.stop()
    assert worker.heard("attempt.ended", status="stopped (left to its lease: it was publishing)")
    assert [a.status for a in place.run(run_id).attempts] == ["IN_PROGRESS"]

    place.worker()
    run = place.completed(run_id)
    assert attempts_of(run) == [("grow", "TIMED_OUT"), ("grow", "COMPLETED")]
    assert place.history()[-1].id == run.output_ref
    assert place.published() == ["grow"]


@pytest.mark.parametrize("later", slow_except(0, of=[0, 2.0]))
def test_what_was_being_handed_out_when_it_stopped_is_given_back(later, place, conductor_server):
    """Conductor had given it away already: nobody else would be handed it before its lease ends."""
    run_id = place.start(worker_tasks.growing_patiently)
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        asked = HeldExchange(when="after")
        wire.on(asked, path=r"/tasks/poll/.*grow_patiently")
        worker = place.worker(listens=True, CONDUCTOR_SERVER_URL=f"{wire.endpoint}/api")
        until(lambda: asked.is_held, lambda: f"it to ask for work\n{worker}")
        worker.ask_to_stop()
        time.sleep(later)  # by then it has nothing else left to do
        asked.release()
        assert worker.end() == 0
    assert_another_one_goes_on(place, run_id)


def test_two_workers_on_one_root_refuse_each_other(place):
    first = place.worker()
    first.wait_for("orchestrator.heard")
    second = place.worker()
    assert second.end() == 2
    assert f"another worker, process {first.pid}, uses " in second.said
    assert "PERAGO_WORKSPACE_ROOT" in second.said
    assert state_of(first.pid)
    first.stop()


def test_a_root_is_free_again_once_its_worker_is_gone_even_killed(place):
    first = place.worker()
    first.wait_for("orchestrator.heard")
    first.kill()
    second = place.worker()
    second.wait_for("orchestrator.heard")
    second.stop()
