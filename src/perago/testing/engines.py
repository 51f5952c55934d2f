"""The engines that tasks are tried with: one Spark for all trials of a process."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from perago.settings import load_settings
from perago.wiring import Engines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.ports.engine import Engine


@functools.cache
def trial_engines() -> Mapping[str, Engine]:
    """Spark is started for the first task that needs it, and ends with this process."""
    home = Path(tempfile.gettempdir()) / f"perago-trial-spark-{os.getpid()}"
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Engines(load_settings(home=home, store="embedded"))
