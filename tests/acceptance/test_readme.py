"""What the pages show is what happens: their code runs, and prints what they say it prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _transcripts():
    spec = importlib.util.spec_from_file_location("transcripts", ROOT / "docs" / "transcripts.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "transcripts", module)
        spec.loader.exec_module(module)
    return module


transcripts = _transcripts()


def test_the_readme_shows_commands_with_their_output():
    assert ROOT / "README.md" in transcripts.pages()


@pytest.mark.process
@pytest.mark.parametrize("page", transcripts.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_the_page_prints_what_the_page_shows(page, tmp_path):
    for command, printed in transcripts.execute(page, tmp_path):
        assert transcripts.same(command.shown, printed, tmp_path), (
            f"{page.name} shows after '$ {command.line}':\n{command.shown}\n"
            f"but it printed:\n{printed}\n"
            "If the new output is right: .venv/bin/python docs/transcripts.py"
        )
