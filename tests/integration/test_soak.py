"""The soak, scaled down: workers and both servers are killed, and everything comes out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"
WORKFLOWS, KILLS = 8, 4
TASKS, WITH_WORKSPACE, CHANGING = 6, 5, 3


def test_whoever_is_killed_every_workflow_comes_out_once(
    lakefs_binaries, conductor_program, tmp_path
):
    run = subprocess.run(
        [
            *(sys.executable, SCRIPT, "--seed", "3", "--workflows", str(WORKFLOWS)),
            *("--kills", str(KILLS), "--server-kills", "1", "--minutes", "12"),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    said = dict(line.split(maxsplit=1) for line in run.stdout.splitlines())
    assert said["seed"].startswith(f"3: {WORKFLOWS} workflows of {TASKS} tasks")
    assert said["workflows"] == f"{WORKFLOWS} of {WORKFLOWS} COMPLETED"
    assert said["tasks"].startswith(f"{WORKFLOWS * TASKS} accepted")
    refs = WORKFLOWS * WITH_WORKSPACE
    assert said["output"] == f"refs  {refs} of {refs} on their branch"
    assert said["history"].endswith(f", {WORKFLOWS * CHANGING} commits")
    assert re.match(
        f"-9 +{KILLS} of workers .* 2 inside publishing; 1 of Conductor, 1", said["kill"]
    )
    assert said["left"] == "0 staging branches, 0 attempt directories, 0 findings of perago gc"
    assert list(tmp_path.iterdir()) == []
