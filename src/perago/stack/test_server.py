"""Servers that live only as long as a test, benchmark or script needs them.

The product itself never uses this module. Each ``start_…`` function returns a context manager
that stops its server at the end, and raises RuntimeConfigError if the server doesn't start.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from perago.stack import conductor, lakefs, spark, spark_connect
from perago.stack.server import address_of, launch, port_for, start, stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perago.adapters.spark.configuration import LakeFSLogin
    from perago.stack.processes import Process
    from perago.stack.server import Server


class TemporaryServer:
    """A running server, which can also be killed and restarted."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process

    def __repr__(self) -> str:
        return f"<{self._server.name} on port {self._server.port}, pid {self.pid}>"

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment variables that its clients read."""
        return self._server.settings

    @property
    def endpoint(self) -> str:
        """Its address, without a path."""
        return address_of(self._server.health_url)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._server.log

    @property
    def is_running(self) -> bool:
        return self._process.is_alive

    def stop(self) -> None:
        stop(self._server.directory)

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        self._process.kill()

    def restart(self) -> None:
        """Stop it and start it again, with the same address, data and credentials."""
        self.stop()
        self._process = launch(self._server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class TemporaryLakeFS(TemporaryServer):
    @property
    def access_key_id(self) -> str:
        return self.settings["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"]

    @property
    def secret_access_key(self) -> str:
        return self.settings["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"]

    @property
    def storage_namespace(self) -> str:
        return self.settings["PERAGO_LAKEFS_STORAGE_NAMESPACE"]


class TemporaryConductor(TemporaryServer):
    @property
    def address(self) -> str:
        """Of its API, as CONDUCTOR_SERVER_URL has it."""
        return self.settings["CONDUCTOR_SERVER_URL"]


class TemporarySparkCluster:
    """A standalone master and its workers."""

    def __init__(self, master: TemporaryServer, workers: list[TemporaryServer]) -> None:
        self.master = master
        self.workers = workers

    @property
    def address(self) -> str:
        """As SPARK_MASTER has it."""
        return self.master.endpoint

    def stop(self) -> None:
        for server in (*self.workers, self.master):
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_lakefs(
    directory: Path, *, port: int | None = None, config: Mapping[str, object] | None = None
) -> TemporaryLakeFS:
    """Start a lakeFS with the data in ``directory``, if any, on ``port`` or any free one.

    ``config`` is merged into its configuration, section by section.
    """
    server = lakefs.lakefs_server(directory, port or port_for(directory), _ignore, config=config)
    return TemporaryLakeFS(server, launch(server))


def start_conductor(
    directory: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> TemporaryConductor:
    """Start a Conductor with the data in ``directory``, if any, on ``port`` or any free one.

    ``properties`` are Spring's and override our own. ``java_options`` are for the JVM:
    ``-XX:TieredStopAtLevel=1`` starts sooner and works slower.
    """
    server = conductor.conductor_server(
        directory,
        port or port_for(directory),
        _ignore,
        properties=properties,
        java_options=java_options,
    )
    return TemporaryConductor(server, launch(server))


def start_spark_cluster(directory: Path) -> TemporarySparkCluster:
    """Start a master and its workers, each in its own directory below ``directory``."""
    with ExitStack() as undo:
        place = directory / spark.MASTER
        undo.callback(stop, place)
        master = spark.master_server(place, port_for(place), _ignore)
        cluster = TemporarySparkCluster(TemporaryServer(master, launch(master)), [])
        starting = []
        for name in spark.WORKERS:
            place = directory / name
            undo.callback(stop, place)
            port = port_for(place)
            worker = spark.worker_server(name, place, port, _ignore, master=cluster.address)
            starting.append(start(worker))
        cluster.workers += [TemporaryServer(one.server, one.until_healthy()) for one in starting]
        undo.pop_all()
    return cluster


def start_spark_connect(
    directory: Path,
    *,
    login: LakeFSLogin | None = None,
    settings: Mapping[str, str] | None = None,
) -> TemporaryServer:
    """Start a Spark Connect server in ``directory``, on any free port.

    ``login`` is for its ``s3a``; ``settings`` are Spark's and override our own.
    """
    server = spark_connect.connect_server(
        directory, port_for(directory), _ignore, login=login, settings=settings
    )
    return TemporaryServer(server, launch(server))


def _ignore(_line: str) -> None:
    """Tests don't show progress."""
