"""What the worker's poller loads of the adapter, and what embedded use doesn't."""

import json
import subprocess
import sys

import pytest


def loaded_by(statement):
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return json.loads(said.stdout)


@pytest.mark.parametrize("heavy", ["pydantic", "rich", "click", "sqlite3"])
def test_the_orchestrator_alone_loads_nothing_heavy(heavy):
    assert heavy not in loaded_by("import perago.adapters.conductor.orchestrator")


def test_embedded_use_does_not_load_the_adapter():
    loaded = loaded_by("import perago.wiring")
    assert [name for name in loaded if name.startswith("perago.adapters.conductor")] == []
