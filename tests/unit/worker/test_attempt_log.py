"""What an attempt leaves in the logs, and that a short one with nothing to say leaves nothing."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from perago.worker.attempt_log import AttemptLog, OutputStreams, collect_spool, move_spool
from perago.worker.messages import spool_path


@pytest.fixture
def printing(tmp_path):
    """Run code with a record that has a spool, in a process whose output it may redirect."""

    def run(code, *, spool=True):
        where = "root / 'spool'" if spool else None
        script = f"""
            import os, sys
            from pathlib import Path
            from perago.worker.attempt_log import AttemptLog, OutputStreams
            root, output = Path({str(tmp_path)!r}), OutputStreams()
            def record(name):
                logs = root / "logs" / name
                return AttemptLog(logs / "events.jsonl", logs / "out.log", output, {where})
        """
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(code)], check=True
        )
        return {
            str(path.relative_to(tmp_path / "logs")): path.read_text()
            for path in sorted((tmp_path / "logs").rglob("*"))
            if path.is_file()
        }

    return run


def test_silent_ones_leave_nothing(printing):
    left = printing("""
        for name in ("first", "second"):
            one = record(name)
            one.begin()
            one.event({"step": "body"})
            one.restore_output()
            assert one.printed() == ()
            one.end()
    """)
    assert left == {}


def test_what_is_printed_is_the_log_of_the_one_that_printed_it(printing):
    left = printing("""
        for name, text in (("first", "1"), ("silent", ""), ("third", "3")):
            one = record(name)
            one.begin()
            one.event({"step": "body"})
            if text:
                print(text)
                os.system(f"echo below {text}")
            one.restore_output()
            assert one.printed() == ((text, f"below {text}") if text else ())
            one.end()
    """)
    assert left == {
        "first/events.jsonl": '{"step": "body"}\n',
        "first/out.log": "1\nbelow 1\n",
        "third/events.jsonl": '{"step": "body"}\n',
        "third/out.log": "3\nbelow 3\n",
    }


def test_one_that_lasts_is_written_where_it_belongs_from_then_on(printing):
    left = printing("""
        one = record("one")
        one.begin()
        print("before")
        one.event({"step": "validate"})
        one.keep()
        assert (root / "logs/one/out.log").read_text() == "before\\n"
        print("after")
        one.event({"step": "body"})
        one.end()
        other = record("other")
        other.begin()
        print("of the other")
        other.end()
    """)
    assert left == {
        "one/events.jsonl": '{"step": "validate"}\n{"step": "body"}\n',
        "one/out.log": "before\nafter\n",
        "other/out.log": "of the other\n",
    }


def test_a_second_delivery_goes_on_in_the_same_log(printing):
    left = printing("""
        for text in ("first", "second"):
            one = record("same")
            one.begin()
            print(text)
            one.keep()
            print("more of the", text)
            one.end()
    """)
    assert left == {"same/out.log": "first\nmore of the first\nsecond\nmore of the second\n"}


def test_a_failure_is_kept_whatever_was_printed(printing):
    left = printing("""
        one = record("one")
        one.begin()
        one.failure("Traceback")
        one.end()
    """)
    assert left == {"one/out.log": "Traceback\n"}


@pytest.mark.parametrize(
    "mischief",
    [
        "sys.stdout = open(os.devnull, 'w')",
        "sys.stdout.close()",
        "os.close(1); os.close(2)",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
        "sys.stdout = sys.stderr = None",
    ],
)
@pytest.mark.parametrize("spool", [True, False], ids=["spool", "no spool"])
def test_what_a_body_does_to_the_streams_is_undone(printing, tmp_path, mischief, spool):
    (tmp_path / "logs" / "one").mkdir(parents=True)
    left = printing(
        f"""
        one = record("one")
        one.begin()
        {mischief}
        one.restore_output()
        print("heard")
        one.end()
        """,
        spool=spool,
    )
    assert left == {"one/out.log": "heard\n"}


def test_the_spool_of_a_dead_executor_becomes_the_log_of_what_it_was_at(tmp_path):
    spool, log = spool_path(tmp_path, 7), tmp_path / "run" / "out.log"
    spool.write_text("its last words")
    collect_spool(spool, log)
    assert log.read_text() == "its last words"
    assert not spool.exists()


def test_the_spool_of_an_idle_or_silent_executor_goes_with_it(tmp_path):
    for printed in (None, tmp_path / "run" / "out.log"):
        spool = spool_path(tmp_path, 7)
        spool.touch()
        collect_spool(spool, printed)
        assert list(tmp_path.iterdir()) == []
    collect_spool(spool, None)  # gone already


@pytest.mark.parametrize("put", [move_spool, collect_spool])
def test_what_can_not_be_put_in_its_place_stays_where_it_is(tmp_path, capsys, put):
    spool, in_the_way = tmp_path / "spool", tmp_path / "file"
    spool.write_text("kept")
    in_the_way.touch()
    put(spool, in_the_way / "out.log")
    assert spool.read_text() == "kept"
    assert "can't write" in capsys.readouterr().err


def test_events_are_written_as_they_come_where_there_is_no_spool(tmp_path):
    record = AttemptLog(tmp_path / "events", tmp_path / "out", OutputStreams(), spool=None)
    record.event({"step": "body", "where": os.fspath(tmp_path)})
    assert json.loads((tmp_path / "events").read_text())["step"] == "body"
