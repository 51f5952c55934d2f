"""What ``perago.testing`` offers: adding or dropping a name is a decision, made here."""

from pathlib import Path

import pytest

import perago.testing

EXPORTS = [
    "Bench",
    "FaultyStore",
    "InjectedFaults",
    "ManualClock",
    "RecordingJournal",
    "TaskTrial",
    "parse_faults",
    "run_task",
]


def test_the_package_offers_these_names_and_no_other():
    assert perago.testing.__all__ == EXPORTS
    assert dir(perago.testing) == sorted(EXPORTS)


@pytest.mark.parametrize("name", EXPORTS)
def test_each_can_be_used_and_is_explained(name):
    assert getattr(perago.testing, name)
    assert f"``{name}``" in perago.testing.__doc__


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'perago\.testing' has no attribute 'run_tsak'"):
        _ = perago.testing.run_tsak


@pytest.mark.parametrize(
    ("name", "now"),
    [("Schedule", "schedule"), ("AT_THE_END", "invariants"), ("FaultyWire", "wire")],
)
def test_a_harness_that_is_no_longer_shipped_says_where_it_is(name, now):
    with pytest.raises(
        AttributeError, match=rf"perago\.testing\.{name} .* tests/support/{now}\.py"
    ):
        getattr(perago.testing, name)


@pytest.mark.parametrize("name", perago.testing._MOVED)  # noqa: SLF001 - the list is private
def test_where_a_harness_is_said_to_be_it_is(name):
    assert (Path(__file__).parents[2] / "support" / f"{name}.py").is_file()
