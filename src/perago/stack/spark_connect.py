"""Spark Connect on loopback: a driver for clients without Java, which reads and writes lakeFS."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from perago.adapters.spark.configuration import COMMITTER, DEFAULTS, LakeFSLogin, as_properties
from perago.stack import lakefs
from perago.stack.server import LOOPBACK, Server, ServerKind, read_record
from perago.stack.spark import (
    HIDDEN_VARIABLES,
    SCRATCH,
    START_TIMEOUT_SECONDS,
    is_prepared,
    prepare,
    spark_program,
)
from perago.toolchain.spark_archive import archive_options
from perago.toolchain.spark_jars import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.stack.spark import SparkProgram
    from perago.toolchain.cache import OnLine

_PROPERTIES = "spark.properties"
_MEMORY = "1g"


def connect_server(
    directory: Path,
    port: int,
    on_line: OnLine,
    *,
    login: LakeFSLogin | None,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """Describe a Spark Connect server whose files are all in ``directory``.

    Its ``s3a`` reaches the lakeFS of ``login``; that secret is only in a private file. ``settings``
    are Spark's and override those of :func:`configuration`. Raises RuntimeConfigError as
    :func:`~perago.stack.spark.spark_program` does.
    """
    directory = directory.absolute()
    program = spark_program(on_line)
    configured = configuration(directory, port, program, login) | dict(settings or {})
    return Server(
        name="spark-connect",
        version=VERSION,
        directory=directory,
        command=(
            *(program.launcher, "org.apache.spark.deploy.SparkSubmit"),
            *("--properties-file", str(directory / _PROPERTIES)),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            "spark-internal",
        ),
        port=port,
        health_url=f"sc://{LOOPBACK}:{port}",
        files={_PROPERTIES: as_properties(configured)},
        folders=(SCRATCH,),
        settings={},
        hidden_variables=HIDDEN_VARIABLES,
        start_timeout_seconds=START_TIMEOUT_SECONDS,
        environment={**program.environment(directory), "PYSPARK_PYTHON": sys.executable},
    )


def configuration(
    directory: Path, port: int, program: SparkProgram, login: LakeFSLogin | None
) -> dict[str, str]:
    scratch = directory / SCRATCH
    options = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    if program.archive:
        options += f" {archive_options(program.archive)}"
    s3a = login.global_settings() if login else {}
    return {
        "spark.app.name": "perago-stack",
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": _MEMORY,
        "spark.driver.extraClassPath": ":".join(map(str, program.jars)),
        "spark.driver.extraJavaOptions": options,
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        **DEFAULTS,
        **COMMITTER,
        **{f"spark.hadoop.{name}": value for name, value in s3a.items()},
    }


def _connect_server_of_stack(directory: Path, port: int, on_line: OnLine) -> Server:
    """Describe one that reaches the lakeFS of the same stack, if that has one."""
    lakefs_directory = directory.parent / lakefs.KIND.name
    record = read_record(lakefs_directory)
    server = lakefs.lakefs_server(lakefs_directory, record.port, on_line) if record else None
    login = login_from(server.settings) if server else None
    return connect_server(directory, port, on_line, login=login)


def login_from(settings: Mapping[str, str]) -> LakeFSLogin:
    """Return the login in the settings of a lakeFS's clients."""
    return LakeFSLogin(
        settings["LAKECTL_SERVER_ENDPOINT_URL"],
        settings["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        settings["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
    )


KIND = ServerKind(
    name="spark-connect",
    title="Spark Connect",
    version=VERSION,
    prepare=prepare,
    is_prepared=is_prepared,
    server=_connect_server_of_stack,
    variable="SPARK_REMOTE",
)
