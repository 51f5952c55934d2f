"""A Spark cluster on loopback: a standalone master and two workers of one core each.

Whoever can open a connection to the master can have it run code, as on any such cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.stack.server import (
    LOOPBACK,
    Server,
    ServerKind,
    read_record,
)
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


# --- Spark's program for servers: the PySpark wheel, a Java, jars for S3, and where it may ---
HIDDEN_VARIABLES = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "JAVA_HOME", *OPTION_VARIABLES)
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


def spark_program(on_line: OnLine) -> SparkProgram:
    """The program: from the cache, else fetched now.

    Raises RuntimeConfigError if PySpark isn't installed, or a Java or the jars can't be had.
    """
    home, java = spark_home(), spark_java(on_line)
    jars = ensure_s3_jars(java.java, on_line)
    return SparkProgram(home, java, jars, driver_archive(java, jars))


def prepare(on_line: OnLine) -> None:
    """Get the program, and build the archive that lets drivers start sooner. Raises as above."""
    program = spark_program(on_line)
    build_driver_archive(program.java, program.jars, on_line)


def is_prepared() -> bool:
    """Whether :func:`prepare` has nothing to do; without PySpark there is nothing it could."""
    if not is_installed():
        return True
    java, jars = installed_spark_java(), cached_s3_jars()
    return java is not None and jars is not None and driver_archive(java, jars) is not None


WORKERS = ("spark-worker-1", "spark-worker-2")
MASTER = "spark-master"
_PROPERTIES = "spark.properties"
# Enough for an executor with what Spark gives one by default.
_WORKER_MEMORY = "1536m"
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData",
}


def master_server(directory: Path, port: int, on_line: OnLine) -> Server:
    """A master whose files are all in ``directory``."""
    return _daemon(
        *(MASTER, directory, port, on_line),
        words=("org.apache.spark.deploy.master.Master",),
        properties={"spark.master.rest.enabled": "false"},
    )


def worker_server(name: str, directory: Path, port: int, on_line: OnLine, *, master: str) -> Server:
    """A worker of the master at that address, whose files and executors' are in ``directory``."""
    return _daemon(
        *(name, directory, port, on_line),
        words=(
            *("org.apache.spark.deploy.worker.Worker", "--cores", "1"),
            *("--memory", _WORKER_MEMORY, "--work-dir", str(directory.absolute() / "work")),
        ),
        last=(master,),
        properties={"spark.worker.cleanup.enabled": "true"},
    )


def _daemon(
    name: str,
    directory: Path,
    port: int,
    on_line: OnLine,
    *,
    words: tuple[str, ...],
    properties: dict[str, str],
    last: tuple[str, ...] = (),
) -> Server:
    directory = directory.absolute()
    program = spark_program(on_line)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / SCRATCH).mkdir(exist_ok=True)
    return Server(
        name=name,
        version=VERSION,
        directory=directory,
        command=(
            *(program.launcher, *words, "--host", LOOPBACK, "--port", str(port)),
            *("--webui-port", "0", "--properties-file", str(directory / _PROPERTIES), *last),
        ),
        port=port,
        health_url=f"spark://{LOOPBACK}:{port}",
        files={_PROPERTIES: "".join(f"{key} {value}\n" for key, value in properties.items())},
        settings={},
        hidden_variables=HIDDEN_VARIABLES,
        start_timeout_seconds=PATIENCE_SECONDS,
        environment={**program.environment(directory), **_DAEMON},
    )


def _worker_beside(name: str, directory: Path, port: int, on_line: OnLine) -> Server:
    record = read_record(directory.parent / MASTER)
    if record is None:
        raise RuntimeConfigError(f"{name} has no master", fix="`perago stack up spark`")
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
            server=partial(_worker_beside, name),
            group="spark",
        )
        for number, name in enumerate(WORKERS, 1)
    ),
)
"""In the order they are started."""
