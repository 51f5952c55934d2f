"""A Spark cluster on loopback: a standalone master and two workers of one core each.

Any process that can connect to the master can run code there, as on any standalone cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.stack.server import LOOPBACK, Server, ServerKind, read_record
from perago.toolchain.java import OPTION_VARIABLES, installed_spark_java, spark_java
from perago.toolchain.spark_archive import build_driver_archive, driver_archive
from perago.toolchain.spark_jars import (
    VERSION,
    cached_s3_jars,
    ensure_s3_jars,
    is_installed,
    spark_home,
)

if TYPE_CHECKING:
    from pathlib import Path

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import SparkJava

MASTER = "spark-master"
WORKERS = ("spark-worker-1", "spark-worker-2")
HIDDEN_VARIABLES = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "JAVA_HOME", *OPTION_VARIABLES)
"""These are for the user's own Spark."""
SCRATCH = "tmp"
START_TIMEOUT_SECONDS = 180.0
_PROPERTIES = "spark.properties"
_WORKER_MEMORY = "1536m"  # enough for an executor of Spark's default size
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData",
}


@dataclass(frozen=True, slots=True)
class SparkProgram:
    """What servers of Spark are started with: PySpark's Spark, a Java, and jars for S3.

    ``archive`` is for a driver with ``jars`` as its extra class path, if one was built.
    """

    home: Path
    java: SparkJava
    jars: tuple[Path, ...]
    archive: Path | None

    @property
    def launcher(self) -> str:
        """The program that starts the class named by its first argument."""
        return str(self.home / "bin" / "spark-class")

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the variables of a server that listens on loopback and writes to ``directory``."""
        return {
            "SPARK_HOME": str(self.home),
            "JAVA_HOME": str(self.java.home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(directory / SCRATCH),
        }


def spark_program(on_line: OnLine) -> SparkProgram:
    """Return the program; fetch what isn't in the cache.

    Raises RuntimeConfigError if PySpark isn't installed, or a Java or the jars can't be fetched.
    """
    home, java = spark_home(), spark_java(on_line)
    jars = ensure_s3_jars(java.java, on_line)
    return SparkProgram(home, java, jars, driver_archive(java, jars))


def prepare(on_line: OnLine) -> None:
    """Fetch the program, and build the archive for drivers. Raises as :func:`spark_program`."""
    program = spark_program(on_line)
    build_driver_archive(program.java, program.jars, on_line)


def is_prepared() -> bool:
    """Whether :func:`prepare` has nothing to do; without PySpark there is nothing to prepare."""
    if not is_installed():
        return True
    java, jars = installed_spark_java(), cached_s3_jars()
    return java is not None and jars is not None and driver_archive(java, jars) is not None


def master_server(directory: Path, port: int, on_line: OnLine) -> Server:
    """Describe a master whose files are all in ``directory``. Raises as :func:`spark_program`."""
    return _daemon(
        *(MASTER, directory, port, on_line),
        arguments=("org.apache.spark.deploy.master.Master",),
        properties={"spark.master.rest.enabled": "false"},
    )


def worker_server(name: str, directory: Path, port: int, on_line: OnLine, *, master: str) -> Server:
    """Describe a worker of the ``master`` at that address; it and its executors write there."""
    return _daemon(
        *(name, directory, port, on_line),
        arguments=(
            *("org.apache.spark.deploy.worker.Worker", "--cores", "1"),
            *("--memory", _WORKER_MEMORY, "--work-dir", str(directory.absolute() / "work")),
        ),
        last_arguments=(master,),
        properties={"spark.worker.cleanup.enabled": "true"},
    )


def _daemon(
    name: str,
    directory: Path,
    port: int,
    on_line: OnLine,
    *,
    arguments: tuple[str, ...],
    properties: dict[str, str],
    last_arguments: tuple[str, ...] = (),
) -> Server:
    directory = directory.absolute()
    program = spark_program(on_line)
    return Server(
        name=name,
        version=VERSION,
        directory=directory,
        command=(
            *(program.launcher, *arguments, "--host", LOOPBACK, "--port", str(port)),
            *("--webui-port", "0", "--properties-file", str(directory / _PROPERTIES)),
            *last_arguments,
        ),
        port=port,
        health_url=f"spark://{LOOPBACK}:{port}",
        files={_PROPERTIES: "".join(f"{key} {value}\n" for key, value in properties.items())},
        folders=(SCRATCH,),
        settings={},
        hidden_variables=HIDDEN_VARIABLES,
        start_timeout_seconds=START_TIMEOUT_SECONDS,
        environment={**program.environment(directory), **_DAEMON},
    )


def _worker_of_stack(name: str, directory: Path, port: int, on_line: OnLine) -> Server:
    record = read_record(directory.parent / MASTER)
    if record is None:
        raise RuntimeConfigError(f"{name} has no master", fix="start both: `perago stack up spark`")
    return worker_server(name, directory, port, on_line, master=record.endpoint)


KINDS = (
    ServerKind(
        name=MASTER,
        title="Spark's master",
        version=VERSION,
        prepare=prepare,
        is_prepared=is_prepared,
        server=master_server,
        group="spark",
        variable="SPARK_MASTER",
    ),
    *(
        ServerKind(
            name=name,
            title=f"Spark's worker {number}",
            version=VERSION,
            prepare=prepare,
            is_prepared=is_prepared,
            server=partial(_worker_of_stack, name),
            group="spark",
        )
        for number, name in enumerate(WORKERS, 1)
    ),
)
"""In the order they are started."""
