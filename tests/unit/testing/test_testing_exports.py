"""What ``perago.testing`` offers: adding or dropping a name is a decision, made here."""

import pytest

import perago.testing

EXPORTS = [
    "ATOMIC_STORE",
    "AT_THE_END",
    "EVERY_STORE",
    "Bench",
    "FaultyStore",
    "FaultyWire",
    "InjectedFaults",
    "InvariantViolated",
    "ManualClock",
    "RecordingJournal",
    "Schedule",
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
