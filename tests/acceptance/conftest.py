"""What a command line's test looks into beside what was printed: the store and the queue."""

import pytest

from perago.model.controls import TaskControls
from perago.model.run import RunPlan, StepPlan
from perago.settings import load_settings
from perago.wiring import open_queue, open_store


@pytest.fixture
def store(project):
    opened = open_store(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def start_waiting(queue):
    """Start a run of one step that nobody works on; its id."""

    def start(name="songs", workspace=None):
        step = StepPlan(
            reference="count",
            task_name="songs.count",
            module="songs_tasks",
            uses_workspace=workspace is not None,
            params={},
            controls=TaskControls(),
        )
        return queue.start(RunPlan(name, "songs_tasks:songs", (step,)), workspace)

    return start


@pytest.fixture
def queue(project):
    opened = open_queue(load_settings())
    yield opened
    opened.close()
