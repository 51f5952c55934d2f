"""The one place where settings become adapters."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.embedded.store import EmbeddedStore
from perago.adapters.local.engine import LocalEngine, LocalWorkspace, folds_case
from perago.adapters.local_io.file_copy import share_blocks
from perago.declare.signature import SPARK
from perago.errors import RepositoryNotFoundError, RuntimeConfigError
from perago.flow.runtime import Runtime
from perago.model.progress import Transfer
from perago.model.workspace import key_prefix
from perago.ports.environment import NoFailpoints, SilentJournal, SystemClock
from perago.toolchain.lineage_config import http_transport, is_asked_for, job_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.adapters.conductor.client import ConductorConfig
    from perago.adapters.conductor.definitions import ConductorDefinitions
    from perago.adapters.conductor.orchestrator import ConductorOrchestrator
    from perago.adapters.conductor.runs import ConductorRuns
    from perago.adapters.lakefs.cache import Trimmed
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.lakefs.store import LakeFSStore
    from perago.adapters.spark.engine import Spark, SparkEngine
    from perago.declare.pipeline import Pipeline
    from perago.declare.task import AnyTask
    from perago.model.workspace import ChangeSet
    from perago.ports.engine import Engine
    from perago.ports.environment import Failpoints, Journal
    from perago.settings import Settings
    from perago.toolchain.cache import OnLine


SPARK_LOGS = "spark-*.log"
"""Names what the Spark of a process says of itself, among the logs."""

SPARK_SCRATCH = "spark-*"
"""Names what is kept for a while for the Spark of a process, below the attempts."""


def open_store(settings: Settings) -> EmbeddedStore | LakeFSStore:
    """The store that workspaces live in, by the setting ``store``."""
    return open_lakefs(settings) if settings.store == "lakefs" else open_embedded(settings)


def open_embedded(settings: Settings) -> EmbeddedStore:
    return EmbeddedStore(settings.home.absolute() / "store", clock=SystemClock())


def open_lakefs(settings: Settings) -> LakeFSStore:
    """Nothing is asked of the server yet. Raises RuntimeConfigError, naming what isn't set."""
    from perago.adapters.lakefs.cache import ObjectCache
    from perago.adapters.lakefs.store import LakeFSStore

    config = lakefs_config(settings)
    limit = settings.cache_bytes
    cache = ObjectCache(settings.object_cache, limit_bytes=limit) if limit else None
    return LakeFSStore(config, cache=cache)


def trim_object_cache(settings: Settings, *, dry_run: bool) -> Trimmed:
    """Cut the machine's object cache to its limit; to nothing where none is wanted any more."""
    from perago.adapters.lakefs.cache import ObjectCache

    with closing(ObjectCache(settings.object_cache, limit_bytes=settings.cache_bytes)) as cache:
        return cache.trim(dry_run=dry_run)


def lakefs_config(settings: Settings) -> LakeFSConfig:
    """Raises RuntimeConfigError, naming what isn't set."""
    from perago.adapters.lakefs.client import LakeFSConfig

    address, key, secret = settings.lakefs_login
    if settings.lakefs_ca_file is not None:
        _assert_certificates("PERAGO_LAKEFS_CA_FILE", settings.lakefs_ca_file)
    return LakeFSConfig(
        address,
        key,
        secret.get_secret_value(),
        ca_file=settings.lakefs_ca_file,
        storage_namespace=settings.lakefs_storage_namespace,
    )


def _assert_certificates(variable: str, file: Path) -> None:
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except FileNotFoundError:
        problem = "there is no such file"
    except ssl.SSLError:
        problem = "there is no certificate in it"
    except OSError as error:
        problem = error.strerror or str(error)
    else:
        return
    raise RuntimeConfigError(
        f"{variable}={file}: {problem}",
        fix="name the file with the authority's certificate, in PEM form",
    )


def branch_to_start_from(store: EmbeddedStore | LakeFSStore, repository: str) -> str | None:
    """The branch that a new one begins at, unless a person says otherwise; None: it begins empty.

    None as well for a repository that isn't there yet.
    """
    if isinstance(store, EmbeddedStore):
        return None
    with suppress(RepositoryNotFoundError):
        return store.default_branch(repository)
    return None


def fence_file() -> tuple[str, bytes]:
    """The key and the content of the action that makes lakeFS compare and swap."""
    from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY

    return FENCE_KEY, FENCE_ACTION


def open_queue(settings: Settings, *, only_run: str | None = None) -> EmbeddedQueue:
    """Each store has its own. On lakeFS this raises as :func:`lakefs_config` does."""
    return EmbeddedQueue(settings.queue, clock=SystemClock(), only_run=only_run)


def open_runs(settings: Settings) -> EmbeddedQueue | ConductorRuns:
    """Whoever is told what to run, by the setting ``orchestrator``."""
    if settings.orchestrator == "embedded":
        return open_queue(settings)
    from perago.adapters.conductor.runs import ConductorRuns

    return ConductorRuns(conductor_config(settings))


def open_conductor(settings: Settings) -> ConductorOrchestrator:
    """Nothing is asked of the server yet. Raises RuntimeConfigError, naming what isn't set."""
    from perago.adapters.conductor.orchestrator import ConductorOrchestrator

    return ConductorOrchestrator(conductor_config(settings))


def open_definitions(settings: Settings) -> ConductorDefinitions:
    """What Conductor has registered. Raises as :func:`conductor_config` does."""
    from perago.adapters.conductor.definitions import ConductorDefinitions

    return ConductorDefinitions(conductor_config(settings))


def task_definition(task: AnyTask) -> dict[str, object]:
    """A task as Conductor's TaskDef JSON."""
    from perago.adapters.conductor.definitions import task_definition as as_json

    return as_json(task)


def workflow_definition(pipeline: Pipeline) -> dict[str, object]:
    """A pipeline as Conductor's WorkflowDef JSON."""
    from perago.adapters.conductor.definitions import workflow_definition as as_json

    return as_json(pipeline)


def conductor_config(settings: Settings) -> ConductorConfig:
    """Raises RuntimeConfigError, naming what isn't set."""
    from perago.adapters.conductor.client import ConductorConfig

    address, key, secret = settings.conductor_login
    if settings.conductor_ca_file is not None:
        _assert_certificates("PERAGO_CONDUCTOR_CA_FILE", settings.conductor_ca_file)
    return ConductorConfig(
        address,
        key,
        secret.get_secret_value() if secret else None,
        ca_file=settings.conductor_ca_file,
    )


def _open_orchestrator(settings: Settings) -> EmbeddedQueue | ConductorOrchestrator:
    if settings.orchestrator == "embedded":
        return open_queue(settings)
    return open_conductor(settings)


def system_clock() -> SystemClock:
    return SystemClock()


def local_engine() -> LocalEngine:
    return LocalEngine()


def files_of(directory: Path, prefix: str) -> ChangeSet:
    """A directory's files as if a task had put them into an empty workspace: same refusals."""
    return LocalWorkspace(directory, key_prefix(prefix), {}, Transfer(), Transfer(), ()).scan()


def filesystem_traits(directory: Path) -> dict[str, bool]:
    """What the filesystem of a directory does with names and copies, found out by trying."""
    with tempfile.TemporaryFile(dir=directory) as one, tempfile.TemporaryFile(dir=directory) as two:
        one.write(b"perago")
        one.flush()
        shares = share_blocks(one.fileno(), two.fileno())
    return {"folds_case": folds_case(directory), "shares_blocks": shares}


def _ignore_line(line: str) -> None:
    del line


def spark_of(settings: Settings, *, drivers: int = 1, on_line: OnLine = _ignore_line) -> Spark:
    """This process's Spark, not started yet; as many ``drivers`` share the machine."""
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
            with_listener(chosen) if _tells_spark_lineage(settings) else chosen,
            machine=Machine.here(),
            drivers=drivers,
            scratch=scratch,
            keep_success=settings.spark_success_files == "keep",
            on_lakefs=settings.store == "lakefs",
        )

    environment = Prerequisites(on_lakefs=settings.store == "lakefs", on_line=on_line)
    return Driver(
        configure, environment, scratch, settings.logs / SPARK_LOGS.replace("*", str(os.getpid()))
    )


def spark_scratch(settings: Settings, process: int) -> Path:
    """Where the Spark of that process keeps what it needs for a while."""
    return settings.attempts / SPARK_SCRATCH.replace("*", str(process))


def where_spark_runs(settings: Settings) -> str:
    """For people: the place that computes, after "Spark computes …"."""
    from perago.adapters.spark.configuration import chosen_master, is_local
    from perago.adapters.spark.connect import ConnectServer

    if settings.spark_remote is not None:
        return f"by {ConnectServer(settings.spark_remote.get_secret_value()).address}"
    master = chosen_master(settings.spark_master, settings.spark_conf)
    return f"on this machine ({master})" if is_local(master) else f"on {master}"


class Engines(dict[str, "Engine"]):
    """Every engine by its name; Spark's is made when a task is the first to need it."""

    def __init__(
        self, settings: Settings, *, drivers: int = 1, on_line: OnLine = _ignore_line
    ) -> None:
        super().__init__(local=LocalEngine())
        self._settings = settings
        self._drivers = drivers
        self._on_line = on_line
        self._making = threading.Lock()

    def __missing__(self, name: str) -> Engine:
        assert name == SPARK  # noqa: S101 - a declaration names no other
        with self._making:
            if name not in self:
                spark = spark_of(self._settings, drivers=self._drivers, on_line=self._on_line)
                self[name] = spark_engine(self._settings, spark)
        return self[name]


def fetch_spark_prerequisites(settings: Settings, on_line: OnLine) -> None:
    """Fetch what this machine lacks for tasks that need Spark.

    Raises RuntimeConfigError if that can't be, and if Spark couldn't reach their workspaces.
    """
    spark_engine(settings, spark_of(settings, on_line=on_line)).fetch_prerequisites()


def spark_engine(settings: Settings, spark: Spark) -> SparkEngine:
    """Spark as the engine of tasks whose workspaces are in the store of these settings."""
    from perago.adapters.spark.configuration import LakeFSLogin
    from perago.adapters.spark.engine import SparkEngine
    from perago.adapters.spark.lineage import SparkLineage

    login = None
    if settings.store == "lakefs":
        address, key, secret = settings.lakefs_login
        login = LakeFSLogin(address, key, secret.get_secret_value())
    lineage = None
    if _tells_spark_lineage(settings):
        lineage = SparkLineage(job_namespace(os.environ), http_transport(os.environ))
    keep_success = settings.spark_success_files == "keep"
    return SparkEngine(spark, login, keep_success=keep_success, lineage=lineage)


def _tells_spark_lineage(settings: Settings) -> bool:
    """A Spark Connect server has its listeners from whoever runs it."""
    wished = settings.spark_lineage == "on" and settings.spark_remote is None
    return wished and is_asked_for(os.environ)


def build_runtime(
    settings: Settings,
    journal: Journal | None = None,
    *,
    drivers: int = 1,
    on_line: OnLine = _ignore_line,
) -> Runtime:
    """Everything one attempt needs, in the process that will run it.

    As many processes as ``drivers`` may each have a Spark of its own on this machine; ``on_line``
    gets what has to be fetched for it.
    """
    return Runtime(
        store=open_store(settings),
        orchestrator=_open_orchestrator(settings),
        engines=Engines(settings, drivers=drivers, on_line=on_line),
        clock=SystemClock(),
        journal=journal or SilentJournal(),
        workspace_root=settings.attempts,
        store_name=settings.store,
        fence=settings.publish_fence,
        replace=settings.replace,
        single_writer=settings.single_writer,
        failpoints=_failpoints(settings.failpoints),
    )


def warm_up(settings: Settings) -> None:
    """Load now what the first attempt would otherwise load on its lease.

    Raises RuntimeConfigError if it isn't installed.
    """
    if settings.store == "lakefs":
        from perago.adapters.lakefs.client import load_client
        from perago.adapters.lakefs.s3_client import load_obstore

        load_client()
        load_obstore()


def check_failpoints(settings: Settings) -> None:
    """Raises RuntimeConfigError for failpoints that no attempt could be run with."""
    _failpoints(settings.failpoints)


def _failpoints(spec: str) -> Failpoints:
    if not spec:
        return NoFailpoints()
    from perago.adapters.local.faults import parse_faults

    try:
        return parse_faults(spec)
    except RuntimeConfigError as error:
        message = f"PERAGO_FAILPOINTS={spec}: {error.message}"
        raise RuntimeConfigError(message, fix=error.fix) from None
