import json
import os

import pytest

from perago.demo.songs.events import Amount, make_catalogue, write_catalogue, write_events

SEVERAL_FILES = Amount(rows=200_001, songs=20, seed=1)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def written(directory, rows, *, seed=7):
    amount = Amount(rows, songs=20, seed=seed)
    write_events(directory, amount)
    return contents(directory)


def test_the_same_params_make_the_same_bytes(tmp_path):
    assert written(tmp_path / "once", 500) == written(tmp_path / "again", 500)
    assert written(tmp_path / "other", 500, seed=8) != written(tmp_path / "more", 500)


@pytest.mark.process
def test_any_number_of_processes_makes_the_same_bytes(tmp_path, monkeypatch):
    for processes in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda n=processes: n)
        write_events(tmp_path / str(processes), SEVERAL_FILES)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


@pytest.mark.process
def test_a_process_that_ends_badly_is_no_success(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    (tmp_path / "part-00001.jsonl").mkdir()
    with pytest.raises(ChildProcessError, match=r"\[1\]"):
        write_events(tmp_path, SEVERAL_FILES)


@pytest.mark.parametrize("rows", [1, 999, 25_001])
def test_there_are_as_many_lines_as_rows(tmp_path, rows):
    files = written(tmp_path, rows)
    assert sum(content.count(b"\n") for content in files.values()) == rows
    assert b"\n\n" not in b"".join(files.values())


def test_more_rows_go_into_more_files_of_a_bounded_size():
    amounts = [Amount(rows, 20, 1) for rows in (10**3, 10**5, 10**6, 10**7, 5 * 10**8)]
    assert [amount.files for amount in amounts] == [1, 4, 8, 20, 1_000]
    assert max(amount.rows_per_file for amount in amounts) == 500_000


def test_some_lines_are_no_json_and_some_events_lack_a_field(tmp_path):
    lines = [line for content in written(tmp_path, 5_000).values() for line in content.splitlines()]
    events = []
    broken = 0
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            broken += 1
    assert 0 < broken < 100
    whole = [event for event in events if event and None not in event.values() and len(event) == 6]
    assert 0 < len(events) - len(whole) < 200
    ids = [event["event_id"] for event in whole]
    assert 0 < len(ids) - len(set(ids)) < 300
    assert any(event["received"][:7] > event["at"][:7] for event in whole)


def test_every_song_of_an_event_is_in_the_catalogue(tmp_path):
    amount = Amount(rows=2_000, songs=5, seed=3)
    write_catalogue(tmp_path / "catalogue" / "songs.jsonl", amount)
    lines = (tmp_path / "catalogue" / "songs.jsonl").read_text().splitlines()
    known = {json.loads(line)["song_id"] for line in lines}
    assert known == {song.song_id for song in make_catalogue(amount)}
    write_events(tmp_path / "raw", amount)
    content = b"".join(contents(tmp_path / "raw").values()).decode()
    assert {text[:6] for text in content.split('"song_id":"')[1:] if len(text) > 60} == known
