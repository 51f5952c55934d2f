"""Users' type checkers: right code passes, and each wrong line is the one reported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The (file, line) pairs mypy reports, run as in a user's own strict project: no plugin."""
    cache = tmp_path_factory.mktemp("mypy")
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}"),
            *("--follow-imports=silent", "--no-error-summary", "right.py", "wrong.py"),
        ],
        cwd=HERE,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    found = re.findall(r"^(\w+\.py):(\d+): error", answer.stdout, re.MULTILINE)
    return {(file, int(line)) for file, line in found}


def test_right_code_type_checks(refused):
    assert {line for file, line in refused if file == "right.py"} == set()


def test_every_wrong_line_is_refused_and_no_other(refused):
    lines = (HERE / "wrong.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wrong) > 10
    assert {line for file, line in refused if file == "wrong.py"} == wrong
