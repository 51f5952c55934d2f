"""Settings become adapters: one ``open_…`` function for each thing that settings choose.

Opening reaches no server. Only a chosen adapter is imported. Nothing here decides more than which
adapter a setting names; RuntimeConfigError names a setting that is missing or wrong.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.embedded.store import EmbeddedStore
from perago.adapters.local.engine import LocalEngine
from perago.declare.signature import SPARK
from perago.errors import RuntimeConfigError
from perago.flow.runtime import Runtime
from perago.ports.environment import NoFailpoints, SilentJournal, SystemClock
from perago.toolchain.lineage_config import http_transport, is_configured, job_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.adapters.conductor.client import ConductorConfig
    from perago.adapters.conductor.definitions import ConductorDefinitions
    from perago.adapters.conductor.orchestrator import ConductorOrchestrator
    from perago.adapters.conductor.runs import ConductorRuns
    from perago.adapters.lakefs.cache import ObjectCache
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.lakefs.store import LakeFSStore
    from perago.adapters.spark.engine import Spark, SparkEngine
    from perago.declare.pipeline import Pipeline
    from perago.declare.task import AnyTask
    from perago.ports.engine import Engine
    from perago.ports.environment import Failpoints, Journal
    from perago.settings import Settings
    from perago.toolchain.cache import OnLine


SPARK_LOGS = "spark-*.log"
"""The log files of Spark drivers, in the log directory; ``*`` is the process id."""

SPARK_SCRATCH = "spark-*"
"""The scratch directories of Spark drivers, beside the attempts; ``*`` is the process id."""


# --- An attempt -----------------------------------------------------------------------------------


def _ignore_line(line: str) -> None:
    del line


def build_runtime(
    settings: Settings,
    journal: Journal | None = None,
    *,
    drivers: int = 1,
    on_line: OnLine = _ignore_line,
) -> Runtime:
    """Everything one attempt needs, in the process that runs it.

    ``drivers`` is the number of processes that may each start a Spark driver on this machine;
    ``on_line`` is called with a line of text for each thing that is downloaded for Spark.
    """
    return Runtime(
        store=open_store(settings),
        orchestrator=open_orchestrator(settings),
        engines=Engines(settings, drivers=drivers, on_line=on_line),
        clock=SystemClock(),
        journal=journal or SilentJournal(),
        workspace_root=settings.attempts,
        store_name=settings.store,
        fence=settings.publish_fence,
        replace=settings.replace,
        single_writer=settings.single_writer,
        failpoints=open_failpoints(settings),
    )


def preload(settings: Settings) -> None:
    """Import now what the first attempt would otherwise import while its lease runs.

    Raises RuntimeConfigError if it isn't installed.
    """
    if settings.store == "lakefs":
        from perago.adapters.lakefs.client import load_client
        from perago.adapters.lakefs.s3_client import load_obstore

        load_client()
        load_obstore()


def open_failpoints(settings: Settings) -> Failpoints:
    """The faults to inject. Raises RuntimeConfigError for an unknown failpoint or action."""
    if not settings.failpoints:
        return NoFailpoints()
    from perago.adapters.local.faults import parse_faults

    try:
        return parse_faults(settings.failpoints)
    except RuntimeConfigError as error:
        message = f"PERAGO_FAILPOINTS={settings.failpoints}: {error.message}"
        raise RuntimeConfigError(message, fix=error.fix) from None


def system_clock() -> SystemClock:
    return SystemClock()


# --- Stores ---------------------------------------------------------------------------------------


def open_store(settings: Settings) -> EmbeddedStore | LakeFSStore:
    """The store of the workspaces, by the setting ``store``."""
    return open_lakefs(settings) if settings.store == "lakefs" else open_embedded(settings)


def open_embedded(settings: Settings) -> EmbeddedStore:
    return EmbeddedStore(settings.home.absolute() / "store", clock=SystemClock())


def open_lakefs(settings: Settings) -> LakeFSStore:
    from perago.adapters.lakefs.store import LakeFSStore

    cache = open_object_cache(settings) if settings.cache_bytes else None
    return LakeFSStore(lakefs_config(settings), cache=cache)


def lakefs_config(settings: Settings) -> LakeFSConfig:
    """Where the lakeFS server is, and the credentials for it."""
    from perago.adapters.lakefs.client import LakeFSConfig

    address, key, secret = settings.lakefs_login
    return LakeFSConfig(
        address,
        key,
        secret.get_secret_value(),
        ca_file=settings.ca_file("lakefs_ca_file"),
        storage_namespace=settings.lakefs_storage_namespace,
    )


def open_object_cache(settings: Settings) -> ObjectCache:
    """This machine's cache of lakeFS objects. A limit of 0 keeps none."""
    from perago.adapters.lakefs.cache import ObjectCache

    return ObjectCache(settings.object_cache, limit_bytes=settings.cache_bytes)


def fence_file() -> tuple[str, bytes]:
    """The key and the content of the action that makes lakeFS compare and swap."""
    from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY

    return FENCE_KEY, FENCE_ACTION


# --- Orchestrators --------------------------------------------------------------------------------


def open_orchestrator(settings: Settings) -> EmbeddedQueue | ConductorOrchestrator:
    """What hands out attempts, by the setting ``orchestrator``."""
    if settings.orchestrator == "embedded":
        return open_queue(settings)
    return open_conductor(settings)


def open_runs(settings: Settings) -> EmbeddedQueue | ConductorRuns:
    """What starts and lists runs, by the setting ``orchestrator``."""
    if settings.orchestrator == "embedded":
        return open_queue(settings)
    from perago.adapters.conductor.runs import ConductorRuns

    return ConductorRuns(conductor_config(settings))


def open_queue(settings: Settings, *, only_run: str | None = None) -> EmbeddedQueue:
    """The embedded queue of the store in use; it hands out attempts of ``only_run`` if given."""
    return EmbeddedQueue(settings.queue, clock=SystemClock(), only_run=only_run)


def open_conductor(settings: Settings) -> ConductorOrchestrator:
    from perago.adapters.conductor.orchestrator import ConductorOrchestrator

    return ConductorOrchestrator(conductor_config(settings))


def open_definitions(settings: Settings) -> ConductorDefinitions:
    """The task and workflow definitions that are registered in Conductor."""
    from perago.adapters.conductor.definitions import ConductorDefinitions

    return ConductorDefinitions(conductor_config(settings))


def conductor_config(settings: Settings) -> ConductorConfig:
    """Where the Conductor server is, and the credentials for it, if any."""
    from perago.adapters.conductor.client import ConductorConfig

    address, key, secret = settings.conductor_login
    return ConductorConfig(
        address,
        key,
        secret.get_secret_value() if secret else None,
        ca_file=settings.ca_file("conductor_ca_file"),
    )


def task_definition(task: AnyTask) -> dict[str, object]:
    """A task as Conductor's TaskDef JSON."""
    from perago.adapters.conductor.definitions import task_definition as as_json

    return as_json(task)


def workflow_definition(pipeline: Pipeline) -> dict[str, object]:
    """A pipeline as Conductor's WorkflowDef JSON."""
    from perago.adapters.conductor.definitions import workflow_definition as as_json

    return as_json(pipeline)


# --- Engines --------------------------------------------------------------------------------------


def local_engine() -> LocalEngine:
    return LocalEngine()


class Engines(dict[str, "Engine"]):
    """Every engine by name. Spark's is created when the first task needs it."""

    def __init__(
        self, settings: Settings, *, drivers: int = 1, on_line: OnLine = _ignore_line
    ) -> None:
        super().__init__(local=LocalEngine())
        self._settings = settings
        self._drivers = drivers
        self._on_line = on_line
        self._creating = threading.Lock()

    def __missing__(self, name: str) -> Engine:
        assert name == SPARK  # noqa: S101 - a declaration names no other
        with self._creating:
            if name not in self:
                spark = open_spark(self._settings, drivers=self._drivers, on_line=self._on_line)
                self[name] = open_spark_engine(self._settings, spark)
        return self[name]


def open_spark(settings: Settings, *, drivers: int = 1, on_line: OnLine = _ignore_line) -> Spark:
    """This process's Spark, not started yet. ``drivers`` of them share the machine."""
    from perago.adapters.spark.configuration import Machine, driver_configuration
    from perago.adapters.spark.connect import ConnectServer
    from perago.adapters.spark.driver import Driver
    from perago.adapters.spark.jvm import Prerequisites
    from perago.adapters.spark.lineage import with_listener

    if settings.spark_remote is not None:
        return ConnectServer(settings.spark_remote.get_secret_value())
    scratch = spark_scratch(settings, os.getpid())

    def configure(users_own: Mapping[str, str]) -> dict[str, str]:
        chosen = {**users_own, **settings.spark_conf}
        return driver_configuration(
            settings.spark_master,
            with_listener(chosen) if _spark_sends_lineage(settings) else chosen,
            machine=Machine.here(),
            drivers=drivers,
            scratch=scratch,
            keep_success=settings.spark_success_files == "keep",
            on_lakefs=settings.store == "lakefs",
        )

    prerequisites = Prerequisites(on_lakefs=settings.store == "lakefs", on_line=on_line)
    log = settings.logs / SPARK_LOGS.replace("*", str(os.getpid()))
    return Driver(configure, prerequisites, scratch, log)


def open_spark_engine(settings: Settings, spark: Spark) -> SparkEngine:
    """The engine that runs tasks with ``spark`` on workspaces of the store in use."""
    from perago.adapters.spark.configuration import LakeFSLogin
    from perago.adapters.spark.engine import SparkEngine
    from perago.adapters.spark.lineage import SparkLineage

    login = None
    if settings.store == "lakefs":
        address, key, secret = settings.lakefs_login
        login = LakeFSLogin(address, key, secret.get_secret_value())
    lineage = None
    if _spark_sends_lineage(settings):
        lineage = SparkLineage(job_namespace(os.environ), http_transport(os.environ))
    keep_success = settings.spark_success_files == "keep"
    return SparkEngine(spark, login, keep_success=keep_success, lineage=lineage)


def fetch_spark_prerequisites(settings: Settings, on_line: OnLine) -> None:
    """Download what this machine lacks for Spark tasks.

    Raises RuntimeConfigError if a download fails, or if Spark can't reach the workspaces.
    """
    open_spark_engine(settings, open_spark(settings, on_line=on_line)).fetch_prerequisites()


def spark_scratch(settings: Settings, process: int) -> Path:
    """The scratch directory of the Spark driver of that process."""
    return settings.attempts / SPARK_SCRATCH.replace("*", str(process))


def where_spark_runs(settings: Settings) -> str:
    """Where Spark computes, as the end of a sentence: ``on this machine (local[*])``."""
    from perago.adapters.spark.configuration import chosen_master, is_local
    from perago.adapters.spark.connect import ConnectServer

    if settings.spark_remote is not None:
        return f"by {ConnectServer(settings.spark_remote.get_secret_value()).address}"
    master = chosen_master(settings.spark_master, settings.spark_conf)
    return f"on this machine ({master})" if is_local(master) else f"on {master}"


def _spark_sends_lineage(settings: Settings) -> bool:
    """Whether our driver gets OpenLineage's listener. A Spark Connect server has its own."""
    wanted = settings.spark_lineage == "on" and settings.spark_remote is None
    return wanted and is_configured(os.environ)
