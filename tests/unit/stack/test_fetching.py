"""Getting things from registries: what a person is told when it doesn't work."""

import os
import sys

import pytest

from perago.errors import RuntimeConfigError
from perago.stack import lakefs
from perago.stack.fetching import run
from perago.stack.go import OLDEST, parse_version


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


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 darwin/arm64", (1, 27, 0)),
        ("go version go1.27rc1 linux/amd64", (1, 27, 0)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_the_version_of_go_is_read_from_what_it_says(said, version):
    assert parse_version(said) == version


def test_the_pinned_go_is_new_enough_for_lakefs():
    from perago.stack.go import _FETCHED

    assert tuple(map(int, _FETCHED.version.split("."))) >= OLDEST


@pytest.mark.slow
def test_without_a_registry_in_reach_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no Go
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull if name == "PIP_CONFIG_FILE" else "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    told = []
    with pytest.raises(RuntimeConfigError, match="fetching Go failed") as failure:
        lakefs.ensure_lakefs(told.append)
    assert "PIP_INDEX_URL" in failure.value.fix
    assert "compose.yaml" in failure.value.fix
    assert told[0].startswith("fetching Go")
    assert not lakefs.is_cached()
