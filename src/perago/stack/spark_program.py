"""Spark's program for servers: the PySpark wheel, a Java, jars for S3, and where it may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.machine.java import OPTION_VARIABLES
from perago.machine.spark_archive import build_driver_archive, driver_archive
from perago.machine.spark_home import is_installed, spark_home
from perago.machine.spark_jars import cached_s3_jars, ensure_s3_jars
from perago.machine.spark_java import installed_spark_java, spark_java
from perago.stack.server import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from perago.machine.spark_java import SparkJava
    from perago.machine.tools import Tell

DEAF_TO = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "JAVA_HOME", *OPTION_VARIABLES)
"""The user's own Spark is another one."""

SCRATCH = "tmp"
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class SparkProgram:
    """``archive`` is for a driver with ``jars`` as its extra class path, where there is one."""

    home: Path
    java: SparkJava
    jars: tuple[Path, ...]
    archive: Path | None

    @property
    def launcher(self) -> str:
        """What starts the class that its first argument names."""
        return str(self.home / "bin" / "spark-class")

    def environment(self, directory: Path) -> dict[str, str]:
        """Variables of a server that listens on loopback alone and writes into ``directory``."""
        return {
            "SPARK_HOME": str(self.home),
            "JAVA_HOME": str(self.java.home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(directory / SCRATCH),
        }


def spark_program(tell: Tell) -> SparkProgram:
    """The program: from the cache, else fetched now.

    Raises RuntimeConfigError if PySpark isn't installed, or a Java or the jars can't be had.
    """
    home, java = spark_home(), spark_java(tell)
    jars = ensure_s3_jars(java.java, tell)
    return SparkProgram(home, java, jars, driver_archive(java, jars))


def prepare(tell: Tell) -> None:
    """Get the program, and build the archive that lets drivers start sooner. Raises as above."""
    program = spark_program(tell)
    build_driver_archive(program.java, program.jars, tell)


def is_prepared() -> bool:
    """Whether :func:`prepare` has nothing to do; without PySpark there is nothing it could."""
    if not is_installed():
        return True
    java, jars = installed_spark_java(), cached_s3_jars()
    return java is not None and jars is not None and driver_archive(java, jars) is not None
