"""The Spark in the PySpark wheel: where it is, and which one."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from perago.errors import RuntimeConfigError

VERSION = "4.1.2"
"""What jars of ours are chosen for."""


def spark_home() -> Path:
    """PySpark's own directory, which is a whole Spark; nothing of it is imported.

    Raises RuntimeConfigError if PySpark isn't installed, is only the client for Spark Connect, or
    is another version.
    """
    fix = f"pip install 'perago-runtime[spark]', which brings pyspark {VERSION}"
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeConfigError("PySpark isn't installed", fix=fix)
    home = Path(spec.origin).parent
    if not (home / "jars").is_dir():
        raise RuntimeConfigError(f"the PySpark in {home} is a client without Spark", fix=fix)
    if (found := metadata.version("pyspark")) != VERSION:
        raise RuntimeConfigError(f"pyspark is {found}, not {VERSION}", fix=fix)
    return home


def is_installed() -> bool:
    """Whether :func:`spark_home` has an answer."""
    try:
        spark_home()
    except RuntimeConfigError:
        return False
    return True
