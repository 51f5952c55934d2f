"""Tasks whose body takes a ``SparkWorkspace``."""

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
    from perago.adapters.spark.workspace import Place
    from perago.model.attempt import Execution
    from perago.model.progress import Computation
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OnComputation, OpenStagingBranch
    from perago.ports.store import OnTransfer, Store


# --- What an attempt needs of Spark, whichever way Spark is reached ---


class Spark(Protocol):
    """One for a process, started when first needed and kept between attempts."""

    @property
    def sees_local_files(self) -> bool:
        """Whether all of it runs on this machine."""
        ...

    def load(self) -> None:
        """Import PySpark. Raises RuntimeConfigError if it isn't installed."""
        ...

    def fetch_prerequisites(self) -> None:
        """Fetch what this machine lacks for it, once and for all.

        Raises RuntimeConfigError, saying what is missing and can't be fetched.
        """
        ...

    def start(self) -> None:
        """Have it ready; returns at once if it is. Safe to call from any thread.

        Raises RuntimeConfigError, saying what is missing or can't be reached.
        """
        ...

    def open_session(self, name: str, hadoop: Mapping[str, str]) -> SparkSession:
        """A session of its own for one attempt, with these settings for its files.

        Called in the thread that runs the body. Raises as :meth:`start` does.
        """
        ...

    def progress(self) -> Computation | None:
        """How far its jobs are, from any thread; None if nothing is being computed."""
        ...

    def cancel_jobs(self) -> None:
        """Cancel what is still being computed, and return when nothing is.

        Raises SparkFailedError if it doesn't end.
        """
        ...

    def fresh_session(self) -> SparkSession:
        """A session as the attempt's was at first: without what its body has set or cached."""
        ...

    def close_session(self) -> None:
        """End the attempt's session with all it has set, registered and cached. Never raises."""
        ...

    def stop(self) -> None:
        """Stop it for good. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Implements :class:`perago.ports.engine.Engine`.

    With a ``login`` workspaces are in that lakeFS; without, in an embedded store, which has to be a
    :class:`~perago.adapters.spark.local_files.LinkingStore`. With ``lineage``, Spark sends events.
    """

    spark: Spark
    login: LakeFSLogin | None
    keep_success: bool = False
    lineage: SparkLineage | None = None

    def fetch_prerequisites(self) -> None:
        """Fetch what this machine lacks for Spark. Raises RuntimeConfigError."""
        self.assert_files_reachable()
        self.spark.fetch_prerequisites()

    def load(self) -> None:
        self.spark.load()

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
        """Nothing is fetched: Spark reads what the body asks for, where it is."""
        del progress
        place: Place
        if self.login is not None:
            place = LakeFSLocation(store, workspace, prefix, self.login, staging, self.keep_success)
        else:
            self.assert_files_reachable()
            lender = cast("LinkingStore", store)
            place = on_files = LocalLocation(
                store, lender, workspace, prefix, directory, staging, self.keep_success
            )
            on_files.assert_safe()
        session = self.spark.open_session(directory.parent.name, place.hadoop)
        body = BodyWorkspace(session, place, at_root=not key_prefix(prefix))
        listening = self.lineage.listen(session, execution) if self.lineage and execution else None
        return OpenSparkWorkspace(
            self.spark,
            place,
            body,
            computing,
            listening,
            checks_staged_data=staging is not None,
        )

    def assert_files_reachable(self) -> None:
        """Raises RuntimeConfigError where Spark couldn't see the workspaces' files."""
        if self.login is None and not self.spark.sees_local_files:
            raise RuntimeConfigError(
                "SPARK_MASTER or SPARK_REMOTE names a Spark on other machines, which can't see the "
                "files of the embedded store",
                fix="unset it to compute here, or keep the workspaces in lakeFS: --on lakefs",
            )
