from itertools import islice

from perago.backoff import Backoff


def test_pauses_grow_from_the_first_to_the_longest():
    assert list(islice(Backoff(first=1, longest=5), 5)) == [1, 2, 4, 5, 5]


def test_there_is_one_pause_fewer_than_attempts():
    assert list(Backoff(first=1, longest=9, growth=3, attempts=4)) == [1, 3, 9]
    assert list(Backoff(first=1, longest=9, attempts=1)) == []


def test_a_backoff_can_be_iterated_again():
    backoff = Backoff(first=1, longest=2, attempts=3)
    assert list(backoff) == list(backoff) == [1, 2]


def test_a_caller_may_keep_the_last_pause_itself():
    backoff = Backoff(first=0.3, longest=0.4, growth=1.2)
    assert backoff.after(0) == 0.3
    assert backoff.after(0.3) == 0.36
    assert backoff.after(0.36) == 0.4
    assert backoff.after(60) == 0.4


def test_jitter_shortens_pauses_by_at_most_its_share():
    pauses = list(Backoff(first=1, longest=1, attempts=200, jitter=0.5))
    assert all(0.5 <= pause <= 1 for pause in pauses)
    assert len(set(pauses)) > 100
