"""How much of what an attempt printed goes to the orchestrator."""

import pytest

from perago.adapters.conductor.tasks import LOG_LIMIT
from perago.worker.attempt_log import last_printed


def test_little_is_sent_as_it_is(tmp_path):
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    assert last_printed(log) == ("one", "two")


def test_nothing_printed_is_nothing_sent(tmp_path):
    assert last_printed(tmp_path / "log") == ()


@pytest.mark.parametrize("width", [1, 50, 300, 1_999, 100_000])
def test_of_a_megabyte_the_end_is_sent_and_first_of_all_where_the_rest_is(width, tmp_path):
    log = tmp_path / "log"
    log.write_text((f"{'x' * width}\n" * (1_000_000 // width)) + "the end\n")
    first, *lines = last_printed(log)
    assert first.startswith(f"… the last {len(lines)} lines of ")
    assert first.endswith(f"the rest is in {log} on the worker")
    assert lines[-1] == "the end"
    assert len("\n".join((first, *lines))) <= LOG_LIMIT
