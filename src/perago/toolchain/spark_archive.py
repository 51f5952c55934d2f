"""Spark's classes as a Java has them in memory, ready to be mapped: a driver starts sooner.

An archive fits one Java, one PySpark and one class path. With any other Java passes it over
without a word, so it can save time and nothing else.
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
    """What to add to the driver's Java options."""
    return f"-Xshare:auto -Xlog:cds*=off -XX:SharedArchiveFile={archive}"


def driver_archive(java: SparkJava, jars: Sequence[Path]) -> Path | None:
    """The archive for a driver with ``jars`` as its extra class path, if one was built."""
    tool = _archive_of(java, jars)
    return tool.directory / _ARCHIVE if cache_problem(tool) is None else None


def build_driver_archive(java: SparkJava, jars: Sequence[Path], on_line: OnLine) -> Path:
    """The archive, built now if there is none: Spark is started once, for a minute or so.

    Raises RuntimeConfigError if it doesn't start.
    """
    tool = _archive_of(java, jars)
    built = ensure(tool, lambda room: _start_once(java, jars, room, on_line), on_line)
    _remove_former(tool)
    return built / _ARCHIVE


def _archive_of(java: SparkJava, jars: Sequence[Path]) -> Tool:
    home = spark_home()
    where = _digest([str(home), java.java.build])
    jars = [*jars, *sorted((home / "jars").glob("*.jar"))]
    stats = [(str(jar), jar.stat()) for jar in jars]
    # Java compares times and sizes, so another installation of the same PySpark is another one.
    what = _digest(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    # Weighed only: reading it as a whole would cost a part of what it saves.
    return Tool(_NAME, f"{VERSION}-{where}-{what}", (), size_checked=_ARCHIVE)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _remove_former(tool: Tool) -> None:
    """Archives are large, and those of an earlier installation in the same place fit nothing."""
    same_place = tool.version.rsplit("-", 1)[0]
    for former in tool.directory.parent.glob(f"{_NAME}-{same_place}-*"):
        if former.is_dir() and former != tool.directory:
            shutil.rmtree(former, ignore_errors=True)


def _start_once(java: SparkJava, jars: Sequence[Path], room: Path, on_line: OnLine) -> None:
    """Have Spark do a little of everything, and Java write down what it has loaded by the end."""
    on_line(f"starting Spark {VERSION} for the first time: a minute or so, once for this PySpark")
    place = room / "first"
    place.mkdir()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", *OPTION_VARIABLES))
    }
    with as_file(files("perago.toolchain") / _FIRST_RUN) as script:
        run(
            [
                # Our modules beside the script must not stand in the way of others' names.
                *(sys.executable, "-P", script, place, room / _ARCHIVE),
                os.pathsep.join(map(str, jars)),
            ],
            doing=f"starting Spark {VERSION} for the first time",
            fix="set JAVA_HOME to another Java",
            environment={**inherited, "JAVA_HOME": str(java.home)},
            directory=place,
        )
    shutil.rmtree(place)
    # A Java that can't make one starts as well without: an empty one is passed over.
    (room / _ARCHIVE).touch()
