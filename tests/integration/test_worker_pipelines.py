"""What `perago start` makes of whole pipelines on a real Conductor and a real lakeFS."""

import pytest
from support.processes import until
from support.tasks import worker_tasks
from support.worker import SEED, TASKS, reached, task_in

from perago import pipeline
from perago.flow.lifecycle import run_attempt
from perago.testing import Bench

OTHER_MODULE = """
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, task

class Nothing(BaseModel):
    pass

@task(name={name!r}, owner_email="tests@example.com",
      controls=TaskControls(retry=RetryPolicy(count=0)))
def fail(params: Nothing) -> Nothing:
    raise TaskFailed("as ever")
"""


@pytest.fixture
def embedded(tmp_path):
    bench = Bench(tmp_path / "embedded")
    bench.write(SEED)
    yield bench
    bench.close()


def run_embedded(bench, chain):
    """A chain's whole run right here, each attempt at once; its record."""
    tasks = {each.name: each for each in chain.tasks}
    run_id = bench.queue.start(chain.plan(), bench.workspace())
    while bench.queue.get(run_id).status.is_active:
        for delivery in bench.queue.poll(list(tasks), worker_id="worker-1"):
            run_attempt(delivery, tasks[delivery.attempt.task_name], bench.runtime())
    return bench.queue.get(run_id)


def attempts_of(run):
    """What became of a run, in words that fit any orchestrator and any store."""
    return [
        (
            record.attempt.reference_task_name,
            record.attempt.retry_count,
            record.status,
            record.reason,
            record.output.get("result"),
        )
        for record in run.attempts
    ]


@pytest.mark.parametrize(
    "chain", [worker_tasks.chain, worker_tasks.refused], ids=["chain", "refused"]
)
def test_a_pipeline_comes_to_what_it_comes_to_on_the_embedded_store_and_queue(
    chain, place, embedded
):
    worker = place.worker()
    run = place.ended(place.start(chain))
    twin = run_embedded(embedded, chain)

    assert run.status == twin.status
    assert attempts_of(run) == attempts_of(twin)
    assert place.tree() == embedded.read()
    messages = [commit.message for commit in place.history()[1:]]
    assert (
        messages
        == [commit.message for commit in embedded.store.history(embedded.repository, "main")][
            -3::-1
        ]
    )
    assert run.output_ref == place.history()[-1].id
    worker.stop()
    place.assert_nothing_left()


def test_each_output_is_the_next_steps_input_and_is_on_the_branch(place):
    place.worker()
    run = place.completed(place.start(worker_tasks.chain))
    grow, look, count, prune = run.attempts
    seed, grown, pruned = [commit.id for commit in place.history()]

    refs = [record.input["workspace"]["ref"] for record in (grow, look, prune)]
    assert refs == [seed, grown, grown]
    assert [record.output_ref for record in (grow, look, prune)] == [grown, grown, pruned]
    assert set(count.output) == {"result"}
    assert "workspace" not in count.input


def test_what_a_task_prints_is_in_conductor(place):
    place.worker()
    run = place.completed(place.start(worker_tasks.growing, {"grow": {"times": 7}}))
    ((_, text),) = place.conductor.orchestrator.task_logs(run.attempts[0].attempt.task_id)
    assert text == "growing 7 times"


def test_a_worker_serves_the_tasks_of_several_modules(place):
    name = f"{worker_tasks.WHO}.other"
    other = place.directory / "other_tasks.py"
    other.write_text(OTHER_MODULE.format(name=name))
    worker = place.worker(TASKS, other)
    assert worker.wait_for("serving")["modules"] == [str(TASKS), str(other)]

    growing = place.start(worker_tasks.growing)
    failing = place.start(pipeline(f"{worker_tasks.WHO}_other", [task_in(other.read_text())]))
    assert place.completed(growing).attempts[0].status == "COMPLETED"
    (attempt,) = place.ended(failing).attempts
    assert attempt.reason == "task_failed: as ever"


def test_as_many_attempts_run_at_a_time_as_it_was_given_jobs(place):
    place.worker(jobs=2)
    gates = [place.fresh, place.fresh]
    runs = [place.start(worker_tasks.counting, {"count": {"gate": str(gate)}}) for gate in gates]
    until(lambda: all(reached(gate) for gate in gates), "both bodies to run at once")
    third = place.fresh
    runs.append(place.start(worker_tasks.counting, {"count": {"gate": str(third)}}))
    gates[0].touch()
    until(lambda: reached(third), "the third one to take the place of the first")
    for gate in (gates[1], third):
        gate.touch()
    for run in runs:
        assert len(place.completed(run).attempts) == 1
