"""Which Go lakeFS is built with, and what the error says when there is none."""

import os

import pytest

from perago.errors import RuntimeConfigError
from perago.stack import lakefs
from perago.stack.lakefs_build import OLDEST_GO, parse_version


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
    from perago.stack.lakefs_build import _FETCHED

    assert tuple(map(int, _FETCHED.version.split("."))) >= OLDEST_GO


@pytest.mark.process
def test_without_a_registry_in_reach_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no Go
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull if name == "PIP_CONFIG_FILE" else "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    lines = []
    with pytest.raises(RuntimeConfigError, match="fetching Go failed") as failure:
        lakefs.ensure_lakefs(lines.append)
    assert "PIP_INDEX_URL" in failure.value.fix
    assert "compose.yaml" in failure.value.fix
    assert lines[0].startswith("fetching Go")
    assert not lakefs.is_cached()
