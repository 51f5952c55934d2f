"""The JVM of a driver: started with settings in a private file, and a log of its own."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perago.adapters.spark.obedience import obediently

if TYPE_CHECKING:
    from collections.abc import Mapping

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
            process = obediently(
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
