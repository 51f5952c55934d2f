"""The short reason of a failed body leads to the line to look at."""

import json
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.testing import run_task


class Nothing(BaseModel):
    pass


@task(name="reason.deep", owner_email="a@b.c", workspace=WorkspaceSpec())
def parse(ws: Path, params: Nothing) -> Nothing:
    json.loads("{")  # fails far down in the standard library
    return params


def test_it_names_the_place_in_the_tasks_own_module_not_in_a_library():
    trial = run_task(parse)
    assert trial.status == "FAILED"
    assert f"{__file__}:18" in str(trial.reason)
    assert "json/decoder.py" in trial.traceback
