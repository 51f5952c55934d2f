"""What a run warns of is seen, stays, and is said once."""

import io
import json

import pytest
from rich.console import Console
from rich.live import Live

from perago.cli.local_view import JsonLines, LiveTable, RunLines
from perago.model.attempt import Attempt
from perago.worker.events import StepEnded

ATTEMPT = Attempt("run", "count", 1, 0, "task", 0, "songs.count")
SOFT = {"step": "fence.soft", "warning": "publishing with the soft fence only"}
OTHER = {"step": "read_only.discarded", "warning": "what it changed is discarded"}


def test_on_a_terminal_a_warning_stays_above_the_table_once_per_run():
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    table = LiveTable(["count"], screen)
    with Live(table, console=screen, transient=True, auto_refresh=False):
        for fields in (SOFT, SOFT, OTHER):  # the second from another process of the same run
            table.observe(StepEnded(ATTEMPT, fields))
    shown = screen.file.getvalue()
    assert shown.count(SOFT["warning"]) == 1
    assert shown.count(OTHER["warning"]) == 1
    assert "\x1b[1;33mwarning: count: publishing" in shown, "it stands out"


@pytest.mark.parametrize("lines", [JsonLines(), RunLines(["count"])])
def test_in_a_file_a_warning_is_one_line_per_run(lines, capfd):
    for fields in (SOFT, OTHER, SOFT):
        lines.observe(StepEnded(ATTEMPT, fields))
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert SOFT["warning"] in said[0]
    assert OTHER["warning"] in said[1]


def test_events_without_a_warning_are_all_told_to_programs(capfd):
    lines = JsonLines()
    for _ in range(2):
        lines.observe(StepEnded(ATTEMPT, {"step": "fetch"}))
    assert [json.loads(line) for line in capfd.readouterr().err.splitlines()] == [
        {"step": "fetch"},
        {"step": "fetch"},
    ]
