"""A publish budget proposed from real runs' logs."""

import json

import pytest

from perago import PublishBudget
from perago.settings import load_settings


@pytest.fixture
def finished(perago):
    return perago("run", "songs_tasks", "--from", "data", "--json").json["run"]


def test_a_run_s_publications_make_a_budget_to_paste(perago, finished):
    count, total = perago("budget", "songs_tasks", "--json").json["tasks"]
    assert (count["task"], total["task"]) == ("songs.count", "songs.total")
    assert count["publications"] == 1
    assert 0 < count["p50"] == count["p99"] == count["slowest"] < 10
    assert count["lease_seconds"] == 600
    assert count["declared"] is None
    pasted = eval(count["python"], {"PublishBudget": PublishBudget})  # noqa: S307 - our own text
    assert pasted == PublishBudget(**count["proposed"])
    assert count["warnings"][0].startswith("only 1 observed")


def test_people_see_durations_a_table_and_the_lines_to_paste(perago, finished):
    out = perago("budget").out
    assert "songs.count  1" in out
    assert "proposed" in out
    assert "\nPublishBudget(\n    observed_merge_p99_seconds=1,\n" in out
    assert "warning: only 1 observed" in out


def test_one_run_by_a_start_of_its_id(perago, finished):
    assert len(perago("budget", "--run", finished[:8], "--json").json["tasks"]) == 2
    assert perago("budget", "--run", "nonesuch", "--json").code == 3


def test_nothing_published_yet(perago):
    assert perago("budget", "--json").json["tasks"] == []
    assert "no publication of any task to the embedded store is in" in perago("budget").out


def test_what_lakefs_takes_is_asked_for_by_its_name(perago, finished):
    asked = perago("budget", "--on", "lakefs", "--json").json
    assert (asked["store"], asked["tasks"]) == ("lakefs", [])
    assert "no publication of any task to lakeFS" in perago("budget", "--on", "lakefs").out


def test_a_damaged_log_costs_only_its_damaged_lines(perago, finished):
    log = load_settings().logs / finished / "events.jsonl"
    events = log.read_text()
    log.write_text(f'7\n{{"step": "publish", "ta\n{json.dumps(None)}\n{events}')
    assert [task["publications"] for task in perago("budget", "--json").json["tasks"]] == [1, 1]
