"""perago 0.6.1, in the environment that the benchmarks measure it in."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perago.toolchain.cache import cache_problem

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"


@pytest.fixture(scope="session")
def peer_python():
    """The Python that has it. If it isn't installed yet, only CI installs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
        module = importlib.import_module("lakefs_peer")
    if cache_problem(module.peer_tool()) and os.environ.get("CI") != "true":
        pytest.skip("perago 0.6.1 isn't on this machine: `make bench` gets it")
    return module.ensure_peer(print)


@pytest.fixture(scope="session")
def peer_says(peer_python, tmp_path_factory):
    """What 0.6.1's own commands say about each module; all at once, for it starts slowly."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERAGO_", "LAKECTL_"))}
    places = {
        f"PERAGO_{name}_ROOT": str(tmp_path_factory.mktemp(name)) for name in ("WORKSPACE", "LOG")
    }
    answer = subprocess.run(
        [peer_python, HERE / "ask_peer.py", HERE / "modules"],
        env=kept | places | {"PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path_factory.mktemp("peer"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)
