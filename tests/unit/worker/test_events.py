"""Several watchers as one, and what an attempt's status tells them."""

import inspect

import pytest

from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import Attempt, Execution
from perago.model.progress import Transfer
from perago.worker.events import NullObserver, Observer, Observers, outcome

ATTEMPT = Attempt("wf", "ref", 1, 0, "task-id", 0, "songs.clean")
ERROR = OrchestratorUnavailableError("not now")
NEWS = {
    "attempt_started": (ATTEMPT,),
    "execution_began": (Execution(ATTEMPT, "0" * 32),),
    "step_started": (ATTEMPT, "body"),
    "step_ended": (ATTEMPT, {"step": "body"}),
    "progressed": (ATTEMPT, "fetch", Transfer(1, 2, 3, 4)),
    "attempt_ended": (ATTEMPT, "COMPLETED", None),
    "waiting": (1.5,),
    "lease_renewed": (ATTEMPT,),
    "executor_lost": (None, "exited with code 1"),
    "orchestrator_heard": (),
    "orchestrator_unheard": (ERROR,),
    "trouble": (ERROR,),
}


def _methods(kind):
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


class Noting(NullObserver):
    def __init__(self, name, notes):
        for method in NEWS:
            setattr(self, method, lambda *news, method=method: notes.append((name, method, *news)))


def test_nobody_and_several_can_be_told_all_that_a_watcher_can():
    assert set(NEWS) == _methods(Observer) == _methods(NullObserver) == _methods(Observers)


@pytest.mark.parametrize(("method", "news"), NEWS.items())
def test_each_watcher_is_told_everything_in_turn(method, news):
    notes = []
    getattr(Observers(Noting("one", notes), Noting("two", notes)), method)(*news)
    assert notes == [("one", method, *news), ("two", method, *news)]


@pytest.mark.parametrize(
    ("status", "word", "accepted"),
    [
        ("COMPLETED", "COMPLETED", True),
        ("FAILED_WITH_TERMINAL_ERROR", "FAILED_WITH_TERMINAL_ERROR", True),
        ("COMPLETED (not accepted)", "COMPLETED", False),
        ("LOST", "LOST", False),
        ("SUPERSEDED", "SUPERSEDED", False),
        ("stopped (given back)", "STOPPED", False),
    ],
)
def test_a_status_is_one_word_and_accepted_or_not(status, word, accepted):
    assert outcome(status) == (word, accepted)
