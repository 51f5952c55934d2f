"""Runs in perago 0.6.1's environment: what its commands say about each module of a directory."""

import json
import sys
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from perago.cli import app


def ask(module):
    checked = CliRunner().invoke(app, ["check", module])
    with tempfile.TemporaryDirectory() as room:
        written = Path(room) / "definition.json"
        extracted = CliRunner().invoke(app, ["extract", module, "--output", str(written)])
        definition = json.loads(written.read_text()) if written.exists() else None
    return {
        "check": [checked.exit_code, checked.output],
        "extract": [extracted.exit_code, extracted.output],
        "definition": definition,
    }


directory = Path(sys.argv[1])
sys.path.insert(0, str(directory))
names = sorted(file.stem for file in directory.glob("*.py"))
print(json.dumps({name: ask(name) for name in names}))  # noqa: T201 - its answer
