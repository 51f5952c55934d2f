"""The engine of tasks whose body takes a ``SparkWorkspace``, and the Spark that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from perago.adapters.spark.lakefs_files import LakeFSLocation
from perago.adapters.spark.local_files import LocalLocation
from perago.adapters.spark.workspace import BodyWorkspace, OpenSparkWorkspace
from perago.errors import RuntimeConfigError
from perago.model.workspace import key_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from perago.adapters.spark.configuration import LakeFSLogin
    from perago.adapters.spark.lineage import SparkLineage
    from perago.adapters.spark.local_files import LinkingStore
    from perago.adapters.spark.workspace import Location
    from perago.model.attempt import Execution
    from perago.model.progress import Computation
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OnComputation, OpenStagingBranch
    from perago.ports.store import OnTransfer, Store


class Spark(Protocol):
    """A process's Spark, started when first needed and kept between attempts.

    Two classes implement it: a driver in this process, and a client of a Spark Connect server.
    """

    @property
    def sees_local_files(self) -> bool:
        """Whether all of it runs on this machine."""
        ...

    def load(self) -> None:
        """Import PySpark. Raises RuntimeConfigError if it isn't installed."""
        ...

    def fetch_prerequisites(self) -> None:
        """Fetch what this machine lacks for it.

        Raises RuntimeConfigError, saying what is missing and can't be fetched.
        """
        ...

    def start(self) -> None:
        """Start it, or return at once if it runs. Safe to call from any thread.

        Raises RuntimeConfigError, saying what is missing or can't be reached.
        """
        ...

    def open_session(self, name: str, hadoop: Mapping[str, str]) -> SparkSession:
        """Return a new session for one attempt, with these settings of Hadoop for its files.

        Called in the thread that runs the body. Raises as :meth:`start` does.
        """
        ...

    def fresh_session(self) -> SparkSession:
        """Return a session like the attempt's, without what its body has set or cached."""
        ...

    def progress(self) -> Computation | None:
        """Return the progress of its jobs, from any thread; None if none is running."""
        ...

    def cancel_jobs(self) -> None:
        """Cancel all jobs, and return when none is running.

        Raises SparkFailedError if they don't end.
        """
        ...

    def close_session(self) -> None:
        """Close the attempt's session with all it has set, registered and cached. Never raises."""
        ...

    def stop(self) -> None:
        """Stop it for good. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Implements :class:`perago.ports.engine.Engine`.

    With a ``login`` workspaces are in that lakeFS; without, in an embedded store, which must be a
    :class:`~perago.adapters.spark.local_files.LinkingStore`. With ``lineage``, Spark sends events.
    """

    spark: Spark
    login: LakeFSLogin | None
    keep_success: bool = False
    lineage: SparkLineage | None = None

    def load(self) -> None:
        self.spark.load()

    def fetch_prerequisites(self) -> None:
        """Fetch what this machine lacks for Spark. Raises RuntimeConfigError."""
        self.assert_files_reachable()
        self.spark.fetch_prerequisites()

    def warm_up(self) -> None:
        self.assert_files_reachable()
        self.spark.start()

    def stop(self) -> None:
        self.spark.stop()

    def open(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        progress: OnTransfer | None = None,
        *,
        staging: OpenStagingBranch | None = None,
        computing: OnComputation | None = None,
        execution: Execution | None = None,
    ) -> OpenSparkWorkspace:
        """Open a workspace. Nothing is fetched: Spark reads the files where they are."""
        del progress
        location = self._location(store, workspace, prefix, directory, staging)
        session = self.spark.open_session(directory.parent.name, location.hadoop)
        body = BodyWorkspace(session, location, at_root=not key_prefix(prefix))
        listener = self.lineage.listen(session, execution) if self.lineage and execution else None
        return OpenSparkWorkspace(
            self.spark,
            location,
            body,
            computing,
            listener,
            checks_staged_data=staging is not None,
        )

    def _location(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        staging: OpenStagingBranch | None,
    ) -> Location:
        if self.login is not None:
            return LakeFSLocation(store, workspace, prefix, self.login, staging, self.keep_success)
        self.assert_files_reachable()
        linking_store = cast("LinkingStore", store)
        location = LocalLocation(
            store, linking_store, workspace, prefix, directory, staging, self.keep_success
        )
        location.assert_safe()
        return location

    def assert_files_reachable(self) -> None:
        """Raise RuntimeConfigError if Spark can't see the workspaces' files."""
        if self.login is None and not self.spark.sees_local_files:
            raise RuntimeConfigError(
                "SPARK_MASTER or SPARK_REMOTE names a Spark on other machines, which can't see the "
                "files of the embedded store",
                fix="unset it to compute here, or keep the workspaces in lakeFS: --on lakefs",
            )
