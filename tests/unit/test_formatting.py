"""Numbers as people read them."""

import pytest

from perago.formatting import count, duration, iso, shorten_ids, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0, "0.00 s"),
        (0.417, "0.42 s"),
        (42, "42 s"),
        (119, "119 s"),
        (180, "3.0 min"),
        (9000, "2.5 h"),
        (12 * 86_400, "12 d"),
    ],
)
def test_durations_have_two_or_three_digits(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 B"), (999, "999 B"), (16_000, "16.0 kB"), (999_999, "1.0 MB"), (2**31, "2.1 GB")],
)
def test_sizes_are_decimal(number, words):
    assert size(number) == words


def test_very_large_sizes_are_terabytes():
    assert size(5 * 10**12) == "5.0 TB"


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "branch", "1 branch"),
        (0, "branch", "0 branches"),
        (2, "repository", "2 repositories"),
        (2000, "file", "2,000 files"),
    ],
)
def test_nouns_agree_with_their_number(number, noun, words):
    assert count(number, noun) == words


def test_json_has_times_in_utc():
    assert iso(0) == "1970-01-01T00:00:00.000+00:00"
    assert iso(None) is None


def test_ids_of_commits_and_runs_are_shortened_and_nothing_else():
    commit, run = "0123456789ab" + "c" * 52, "0112d1ec-1c2b-4486-87ae-ac1deead5f68"
    text = f"run {run} is at {commit}, not at {'f' * 40} or {'e' * 65}: `perago recover {run}`"
    assert shorten_ids(text) == (
        f"run 0112d1ec is at 0123456789ab, not at {'f' * 40} or {'e' * 65}: "
        "`perago recover 0112d1ec`"
    )
