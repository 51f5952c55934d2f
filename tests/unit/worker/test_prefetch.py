"""How much work a supervisor asks for."""

from perago.worker.orchestrator_link import MOST_AHEAD, Prefetch

SLOTS = 4
QUICK, SLOW = 0.01, 5.0


def at_work(*, seconds=QUICK, attempts=30):
    """A supervisor whose slots are all busy with attempts that took that long lately."""
    offers = Prefetch(SLOTS)
    offers.due(free=SLOTS, waiting=0)
    for _ in range(SLOTS):
        offers.used()
    for _ in range(attempts):
        offers.took(seconds)
    return offers


def test_at_first_there_is_one_for_each_free_slot_and_none_ahead():
    offers = Prefetch(SLOTS)
    assert offers.due(free=SLOTS, waiting=0) == (SLOTS, 0)
    assert offers.due(free=SLOTS, waiting=0) == (0, 0), "what was offered stands"


def test_what_waits_has_a_slot_already():
    assert Prefetch(SLOTS).due(free=3, waiting=2) == (1, 0)


def test_short_attempts_are_taken_ahead_several_at_once():
    offers = at_work()
    slots, ahead = offers.due(free=0, waiting=0)
    assert (slots, ahead) == (0, MOST_AHEAD * SLOTS)
    for _ in range(ahead):
        offers.used()
    assert offers.due(free=0, waiting=ahead) == (0, 0)
    assert offers.due(free=0, waiting=ahead - 1) == (0, 0), "not for a single one"
    assert offers.due(free=0, waiting=ahead // 2) == (0, ahead - ahead // 2)


def test_long_attempts_are_not_taken_ahead():
    assert at_work(seconds=SLOW).due(free=0, waiting=0) == (0, 0)


def test_one_long_attempt_is_enough_to_take_no_more_ahead():
    offers = at_work()
    offers.took(SLOW)
    assert offers.due(free=0, waiting=0) == (0, 0)


def test_what_is_taken_ahead_is_done_in_a_moment():
    _, ahead = at_work(seconds=0.1).due(free=0, waiting=0)
    assert 0 < ahead * 0.1 / SLOTS <= 0.25


def test_where_there_was_less_than_asked_for_nothing_is_taken_ahead_until_more_comes():
    offers = at_work()
    _, ahead = offers.due(free=0, waiting=0)
    offers.ran_dry(ahead)
    assert offers.due(free=0, waiting=0) == (0, 0)
    assert offers.due(free=1, waiting=0) == (1, 0), "a free slot is offered anew"
    offers.used()
    assert offers.due(free=0, waiting=0) == (0, ahead)
