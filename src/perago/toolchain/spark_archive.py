"""An archive of Spark's loaded classes, which Java maps into memory: a driver starts sooner.

An archive fits one Java, one PySpark and one class path. Java silently ignores an archive that
doesn't fit, so an archive can save time and do nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from perago.toolchain.cache import Tool, cache_problem, ensure, run
from perago.toolchain.java import OPTION_VARIABLES
from perago.toolchain.spark_jars import VERSION, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import SparkJava

_ARCHIVE = "classes.jsa"
_NAME = "spark-archive"
_FIRST_RUN = "spark_first_run.py"


def archive_options(archive: Path) -> str:
    """Return what to add to the driver's Java options."""
    return f"-Xshare:auto -Xlog:cds*=off -XX:SharedArchiveFile={archive}"


def driver_archive(java: SparkJava, jars: Sequence[Path]) -> Path | None:
    """Return the archive for a driver with ``jars`` as its extra class path, if one was built."""
    tool = _archive_of(java, jars)
    return tool.directory / _ARCHIVE if cache_problem(tool) is None else None


def build_driver_archive(java: SparkJava, jars: Sequence[Path], on_line: OnLine) -> Path:
    """Return the archive; if there is none, build it, which starts Spark once for about a minute.

    Raises RuntimeConfigError if Spark doesn't start.
    """
    tool = _archive_of(java, jars)
    built = ensure(tool, lambda target: _first_run(java, jars, target, on_line), on_line)
    _remove_outdated(tool)
    return built / _ARCHIVE


def _archive_of(java: SparkJava, jars: Sequence[Path]) -> Tool:
    home = spark_home()
    installation = _digest([str(home), java.java.build])
    jars = [*jars, *sorted((home / "jars").glob("*.jar"))]
    stats = [(str(jar), jar.stat()) for jar in jars]
    # Java compares times and sizes: it takes a new installation of the same PySpark for another.
    class_path = _digest(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    # Only its size is checked: reading it as a whole would cost a part of what it saves.
    return Tool(_NAME, f"{VERSION}-{installation}-{class_path}", (), size_checked=_ARCHIVE)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _remove_outdated(tool: Tool) -> None:
    """Remove archives of the same installation for other jars: they are large and fit nothing."""
    installation = tool.version.rsplit("-", 1)[0]
    for found in tool.directory.parent.glob(f"{_NAME}-{installation}-*"):
        if found.is_dir() and found != tool.directory:
            shutil.rmtree(found, ignore_errors=True)


def _first_run(java: SparkJava, jars: Sequence[Path], target: Path, on_line: OnLine) -> None:
    """Have Spark do a little of everything; at the end Java archives the classes it has loaded."""
    on_line(f"starting Spark {VERSION} for the first time: a minute or so, once for this PySpark")
    scratch = target / "first"
    scratch.mkdir()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", *OPTION_VARIABLES))
    }
    with as_file(files("perago.toolchain") / _FIRST_RUN) as script:
        run(
            [
                # -P: the modules beside the script must not hide packages of the same name.
                *(sys.executable, "-P", script, scratch, target / _ARCHIVE),
                os.pathsep.join(map(str, jars)),
            ],
            doing=f"starting Spark {VERSION} for the first time",
            fix="set JAVA_HOME to another Java",
            environment={**inherited, "JAVA_HOME": str(java.home)},
            directory=scratch,
        )
    shutil.rmtree(scratch)
    # A Java that can't write an archive starts without one: it ignores an empty file.
    (target / _ARCHIVE).touch()
