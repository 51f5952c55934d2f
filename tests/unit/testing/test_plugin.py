"""Whoever installs the package gets its fixture, and nobody else pays for it."""

import subprocess
import sys

PROJECT = """
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class Nothing(BaseModel):
    pass


@task(name="thirdparty.shout", owner_email="a@b.c", workspace=WorkspaceSpec())
def shout(ws: Path, params: Nothing) -> Nothing:
    (ws / "loud").write_text((ws / "soft").read_text().upper())
    return params


def test_it_is_loud(perago_run_task):
    trial = perago_run_task(shout, files={"soft": "la la"})
    assert trial.files["loud"] == b"LA LA"
"""


def test_another_projects_tests_get_the_fixture_without_importing_it(tmp_path):
    (tmp_path / "test_shout.py").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_test_session_that_does_not_use_the_fixture_imports_nothing_heavy():
    script = (
        "import sys, perago.testing.plugin; "
        "print([name for name in ('pydantic', 'sqlite3', 'perago.testing.trial')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
