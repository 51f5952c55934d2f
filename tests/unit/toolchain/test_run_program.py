"""Running programs that fetch and build: what the error says when one fails."""

import os
import sys

import pytest

from perago.errors import RuntimeConfigError
from perago.toolchain.cache import run


def test_a_failure_shows_the_end_of_what_the_program_said_without_passwords(tmp_path):
    script = (
        "import sys\n"
        "for n in range(40): print('line', n)\n"
        "print('no route to https://me:hunter2@registry.example/simple', file=sys.stderr)\n"
        "sys.exit(3)"
    )
    with pytest.raises(RuntimeConfigError) as failure:
        run(
            [sys.executable, "-c", script],
            doing="fetching Go",
            fix="plug it in",
            environment=os.environ,
            directory=tmp_path,
        )
    assert failure.value.message.startswith("fetching Go failed")
    assert "https://…@registry.example/simple" in failure.value.message
    assert "hunter2" not in failure.value.message
    assert "line 39" in failure.value.message
    assert "line 2\n" not in failure.value.message
    assert failure.value.fix == "plug it in"


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RuntimeConfigError, match="no-such-program"):
        run(["no-such-program"], doing="trying", fix="", environment=os.environ, directory=tmp_path)
