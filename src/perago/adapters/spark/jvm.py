"""The JVM of a driver: what it needs on this machine, and how it is started and ended.

Its settings are in a private file, and it has a log of its own. When root starts it, it gives up
the privilege to write files against their permissions.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from perago.adapters.spark.configuration import is_local
from perago.toolchain.java import spark_java
from perago.toolchain.spark_archive import archive_options, driver_archive
from perago.toolchain.spark_jars import cached_s3_jars, ensure_s3_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import SparkJava

T = TypeVar("T")
_POLL_SECONDS = 0.02
_GRACE_SECONDS = 5.0
_PR_CAPBSET_DROP = 24  # linux/prctl.h
_CAP_DAC_OVERRIDE, _CAP_SETPCAP = 1, 8  # linux/capability.h


class LaunchConfig(NamedTuple):
    """A Java, and a driver's settings completed by the jars and options that they need."""

    java_home: Path
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """What a driver needs besides PySpark: a Java and, for lakeFS, jars. Fetched once a machine."""

    on_lakefs: bool
    on_line: OnLine

    def ensure(self, settings: Mapping[str, str]) -> LaunchConfig:
        """Fetch what is missing. Raises RuntimeConfigError if something can't be fetched."""
        java = spark_java(self.on_line)
        jars = self._jars(java, settings)
        completed = dict(settings)
        if jars:
            _prepend(completed, "spark.driver.extraClassPath", os.pathsep.join(map(str, jars)), ":")
        if self.on_lakefs and not is_local(settings["spark.master"]):
            _prepend(completed, "spark.jars", ",".join(map(str, jars)), ",")
        if archive := driver_archive(java, jars):
            _prepend(completed, "spark.driver.extraJavaOptions", archive_options(archive), " ")
        return LaunchConfig(java.home, completed)

    def _jars(self, java: SparkJava, settings: Mapping[str, str]) -> tuple[Path, ...]:
        if not self.on_lakefs:  # the same class path if it costs nothing: one archive fits both
            return cached_s3_jars() or ()
        named = settings.get("spark.jars.repositories", "")
        return ensure_s3_jars(
            java.java,
            self.on_line,
            ivy_settings=settings.get("spark.jars.ivySettings"),
            repositories=[each for each in named.split(",") if each],
        )


def _prepend(settings: dict[str, str], key: str, value: str, separator: str) -> None:
    settings[key] = separator.join(filter(None, (value, settings.get(key))))


class JVMEndedError(Exception):
    """The JVM ended before it accepted connections. Its log says why."""


class _ConnectionInfo(NamedTuple):
    """Where the JVM listens for us, and the secret it expects."""

    port: int
    secret: str


def launch(spark_home: Path, properties: Path, java_home: Path, log: Path) -> Any:
    """Start a JVM and return a py4j gateway to it. The JVM ends when this process does.

    Raises JVMEndedError.
    """
    with tempfile.TemporaryDirectory(prefix="gateway-", dir=properties.parent) as scratch:
        info_file = Path(scratch) / "connection"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(spark_home),  # otherwise a user's own, of another version, is started
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info_file),
        }
        with log.open("ab") as output:
            process = start_unprivileged(
                lambda: subprocess.Popen(
                    [
                        f"{spark_home}/bin/spark-submit",
                        "--properties-file",  # other users can read a command line
                        str(properties),
                        "pyspark-shell",
                    ],
                    env=environment,
                    stdin=subprocess.PIPE,  # the JVM ends when this is closed
                    stdout=output,
                    stderr=output,
                )
            )
        while not info_file.exists():
            if process.poll() is not None:
                end(process)
                raise JVMEndedError
            time.sleep(_POLL_SECONDS)
        info = _read_connection_info(info_file)
    return _connect(info, process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Let a JVM end by itself, for a while; then kill it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read_connection_info(file: Path) -> _ConnectionInfo:
    """Spark writes a port, a length, and that many bytes; it renames the file when complete."""
    data = file.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return _ConnectionInfo(port, data[8 : 8 + length].decode())


def _connect(info: _ConnectionInfo, process: subprocess.Popen[bytes]) -> Any:
    """PySpark connects to a running JVM only if these two variables are set."""
    from pyspark.java_gateway import launch_gateway

    variables = {"PYSPARK_GATEWAY_PORT": str(info.port), "PYSPARK_GATEWAY_SECRET": info.secret}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        _restore_environment(before)
    if gateway.proc is not None:  # the variables were removed meanwhile: PySpark started a JVM
        gateway.proc.kill()
        end(process)
        raise JVMEndedError
    gateway.proc = process
    return gateway


def _restore_environment(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def start_unprivileged(start: Callable[[], T]) -> T:
    """Call ``start``; the process it starts, and that one's children, can't write read-only files.

    Root gives the privilege up in a thread: processes inherit from the thread that starts them, and
    this process keeps its own privileges. Where that isn't possible the process is started all the
    same: see :func:`can_drop_privileges`.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return start()
    with ThreadPoolExecutor(1, initializer=_drop_override) as thread:
        return thread.submit(start).result()


def can_drop_privileges() -> bool:
    """Whether processes of :func:`start_unprivileged` do obey file permissions."""
    if os.geteuid() != 0:
        return True
    if sys.platform != "linux":
        return False
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return effective is not None and can_drop(int(effective[1], 16))


def can_drop(capabilities: int) -> bool:
    """Whether a process with these capabilities can start one that obeys file permissions."""
    return not capabilities >> _CAP_DAC_OVERRIDE & 1 or bool(capabilities >> _CAP_SETPCAP & 1)


def _drop_override() -> None:
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
