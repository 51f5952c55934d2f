"""The JVM of a driver: started with settings in a private file, and a log of its own."""

from __future__ import annotations

import ctypes
import os
import re
import signal
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


# --- Processes that obey file permissions even when root starts them ---
T = TypeVar("T")
_PR_CAPBSET_DROP = 24  # linux/prctl.h
_CAP_DAC_OVERRIDE, _CAP_SETPCAP = 1, 8  # linux/capability.h


def start_unprivileged(start: Callable[[], T]) -> T:
    """Call what starts a process; it and its children can't write what is read-only.

    What a thread gives up is only what it could hand on: this process keeps its own rights. Where
    it isn't possible, it isn't so: ask :func:`can_drop_privileges`.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return start()
    with ThreadPoolExecutor(1, initializer=_give_up_overriding) as thread:
        return thread.submit(start).result()


def can_drop_privileges() -> bool:
    """Whether what :func:`start_unprivileged` starts obeys file permissions."""
    if os.geteuid() != 0:
        return True
    if sys.platform != "linux":
        return False
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return rights is not None and can_drop(int(rights[1], 16))


def can_drop(rights: int) -> bool:
    """Whether a process with these rights can start one that obeys."""
    return not rights >> _CAP_DAC_OVERRIDE & 1 or bool(rights >> _CAP_SETPCAP & 1)


def _give_up_overriding() -> None:
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


# --- What a driver needs of this machine beside PySpark: a Java, and jars for lakeFS ---


class Needed(NamedTuple):
    """A Java, and the settings with all that they need beside them."""

    java_home: Path
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """Brings what is missing, once for the machine, and tells of it."""

    on_lakefs: bool
    on_line: OnLine

    def bring(self, settings: Mapping[str, str]) -> Needed:
        """Raises RuntimeConfigError, saying what couldn't be brought."""
        java = spark_java(self.on_line)
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
            self.on_line,
            ivy_settings=settings.get("spark.jars.ivySettings"),
            repositories=[each for each in named.split(",") if each],
        )


def _add(settings: dict[str, str], key: str, value: str, separator: str) -> None:
    settings[key] = separator.join(filter(None, (value, settings.get(key))))


_LOOK_SECONDS = 0.02


class Announced(NamedTuple):
    """Where a JVM listens for us, and the word it wants to hear."""

    port: int
    secret: str


class GatewayEnded(Exception):
    """The JVM ended before it could be reached. Its log says why."""


def launch(spark_home: Path, properties: Path, java_home: Path, log: Path) -> Any:
    """A py4j gateway to a new JVM. It ends when this process does. Raises GatewayEnded."""
    with tempfile.TemporaryDirectory(prefix="gateway-", dir=properties.parent) as room:
        announcement = Path(room) / "announcement"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(spark_home),  # else a user's own, of another version, is started
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(announcement),
        }
        with log.open("ab") as said:
            process = start_unprivileged(
                lambda: subprocess.Popen(
                    [
                        f"{spark_home}/bin/spark-submit",
                        "--properties-file",  # a command line can be read by everybody
                        str(properties),
                        "pyspark-shell",
                    ],
                    env=environment,
                    stdin=subprocess.PIPE,  # at the end of which it ends
                    stdout=said,
                    stderr=said,
                )
            )
        while not announcement.exists():
            if process.poll() is not None:
                end(process)
                raise GatewayEnded
            time.sleep(_LOOK_SECONDS)
        announced = _read(announcement)
    return _connect(announced, process)


def _read(announcement: Path) -> Announced:
    """As Spark writes it: a port, a length, and that many bytes; named when it is complete."""
    data = announcement.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return Announced(port, data[8 : 8 + length].decode())


def _connect(announced: Announced, process: subprocess.Popen[bytes]) -> Any:
    """PySpark's own way to a JVM that is there already goes by two variables."""
    from pyspark.java_gateway import launch_gateway

    ours = {
        "PYSPARK_GATEWAY_PORT": str(announced.port),
        "PYSPARK_GATEWAY_SECRET": announced.secret,
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        _restore(before)
    if gateway.proc is not None:  # the variables were taken away meanwhile: that one isn't ours
        gateway.proc.kill()
        end(process)
        raise GatewayEnded
    gateway.proc = process
    return gateway


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def end(process: subprocess.Popen[bytes]) -> None:
    """Let a JVM stop by itself, for a while; then have it stopped."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
