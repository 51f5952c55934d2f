"""What a driver needs of this machine beside PySpark: a Java, and jars for lakeFS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from perago.adapters.spark.configuration import is_local
from perago.machine.spark_archive import archive_options, driver_archive
from perago.machine.spark_jars import cached_s3_jars, ensure_s3_jars
from perago.machine.spark_java import spark_java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.machine.spark_java import SparkJava
    from perago.machine.tools import Tell


class Needed(NamedTuple):
    """A Java, and the settings with all that they need beside them."""

    java_home: Path
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class Environment:
    """Brings what is missing, once for the machine, and tells of it."""

    on_lakefs: bool
    tell: Tell

    def bring(self, settings: Mapping[str, str]) -> Needed:
        """Raises RuntimeConfigError, saying what couldn't be brought."""
        java = spark_java(self.tell)
        jars = self._jars(java, settings)
        completed = dict(settings)
        if jars:
            _add(completed, "spark.driver.extraClassPath", os.pathsep.join(map(str, jars)), ":")
        if self.on_lakefs and not is_local(settings["spark.master"]):
            _add(completed, "spark.jars", ",".join(map(str, jars)), ",")
        if archive := driver_archive(java, jars):
            _add(completed, "spark.driver.extraJavaOptions", archive_options(archive), " ")
        return Needed(java.home, completed)

    def _jars(self, java: SparkJava, settings: Mapping[str, str]) -> tuple[Path, ...]:
        if not self.on_lakefs:  # the same class path, where it costs nothing: one archive for both
            return cached_s3_jars() or ()
        named = settings.get("spark.jars.repositories", "")
        return ensure_s3_jars(
            java.java,
            self.tell,
            ivy_settings=settings.get("spark.jars.ivySettings"),
            repositories=[each for each in named.split(",") if each],
        )


def _add(settings: dict[str, str], key: str, value: str, separator: str) -> None:
    settings[key] = separator.join(filter(None, (value, settings.get(key))))
