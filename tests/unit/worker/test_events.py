"""Several observers as one, and what the end of an attempt is called."""

import pytest

from perago.model.attempt import Attempt, AttemptStep, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    Ending,
    NullObserver,
    Observers,
    RetryAwaited,
    StepStarted,
)

ATTEMPT = Attempt("wf", "ref", 1, 0, "task-id", 0, "songs.clean")
EVENTS = [StepStarted(ATTEMPT, AttemptStep.BODY), RetryAwaited(1.5)]


class Recording:
    def __init__(self, name, seen):
        self._name = name
        self._seen = seen

    def observe(self, event):
        self._seen.append((self._name, event))


def test_each_observer_gets_every_event_in_turn():
    seen = []
    observers = Observers(Recording("one", seen), NullObserver(), Recording("two", seen))
    for event in EVENTS:
        observers.observe(event)
    assert seen == [(name, event) for event in EVENTS for name in ("one", "two")]


@pytest.mark.parametrize(
    ("ending", "status", "text", "word", "accepted"),
    [
        (Ending.ACCEPTED, "COMPLETED", "COMPLETED", "COMPLETED", True),
        (
            Ending.ACCEPTED,
            "FAILED_WITH_TERMINAL_ERROR",
            "FAILED_WITH_TERMINAL_ERROR",
            "FAILED_WITH_TERMINAL_ERROR",
            True,
        ),
        (Ending.NOT_ACCEPTED, "COMPLETED", "COMPLETED (not accepted)", "COMPLETED", False),
        (Ending.LEASE_LOST, None, "LOST", "LOST", False),
        (Ending.SUPERSEDED, None, "SUPERSEDED", "SUPERSEDED", False),
        (Ending.UNKNOWN, None, "UNKNOWN", "UNKNOWN", False),
        (Ending.GIVEN_BACK, None, "stopped (given back)", "STOPPED", False),
        (
            Ending.LEFT_TO_LEASE,
            None,
            "stopped (left to its lease: it was publishing)",
            "STOPPED",
            False,
        ),
    ],
)
def test_an_end_is_a_text_for_people_and_one_word_for_metrics(ending, status, text, word, accepted):
    ended = AttemptEnded(ATTEMPT, ending, TaskStatus(status) if status else None)
    assert (ended.text, ended.word, ended.accepted) == (text, word, accepted)
