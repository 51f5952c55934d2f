"""Tasks whose body takes a ``SparkWorkspace``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from perago.adapters.spark.on_files import OnFiles
from perago.adapters.spark.on_lakefs import OnLakeFS
from perago.adapters.spark.workspace import BodyWorkspace, OpenSparkWorkspace
from perago.errors import RuntimeConfigError
from perago.model.keys import key_prefix

if TYPE_CHECKING:
    from pathlib import Path

    from perago.adapters.spark.computing import Spark
    from perago.adapters.spark.lending import Lender
    from perago.adapters.spark.lineage import SparkLineage
    from perago.adapters.spark.place import Place
    from perago.adapters.spark.s3a import LakeFSLogin
    from perago.model.attempt import Execution
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import Computing, OpenStaging
    from perago.ports.store import Progress, Store


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Implements :class:`perago.ports.engine.Engine`.

    With a ``login`` workspaces are in that lakeFS; without, in an embedded store, which has to be a
    :class:`~perago.adapters.spark.lending.Lender`. With ``lineage`` what Spark computes is told.
    """

    spark: Spark
    login: LakeFSLogin | None
    keep_success: bool = False
    lineage: SparkLineage | None = None

    def bring(self) -> None:
        """Fetch what this machine lacks for Spark. Raises RuntimeConfigError."""
        self.assert_within_reach()
        self.spark.bring()

    def load(self) -> None:
        self.spark.load()

    def warm_up(self) -> None:
        self.assert_within_reach()
        self.spark.start()

    def stop(self) -> None:
        self.spark.stop()

    def open(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        progress: Progress | None = None,
        *,
        staging: OpenStaging | None = None,
        computing: Computing | None = None,
        execution: Execution | None = None,
    ) -> OpenSparkWorkspace:
        """Nothing is fetched: Spark reads what the body asks for, where it is."""
        del progress
        place: Place
        if self.login is not None:
            place = OnLakeFS(store, workspace, prefix, self.login, staging, self.keep_success)
        else:
            self.assert_within_reach()
            lender = cast("Lender", store)
            place = on_files = OnFiles(
                store, lender, workspace, prefix, directory, staging, self.keep_success
            )
            on_files.assert_safe()
        session = self.spark.begin(directory.parent.name, place.hadoop)
        body = BodyWorkspace(session, place, at_root=not key_prefix(prefix))
        listening = self.lineage.listen(session, execution) if self.lineage and execution else None
        return OpenSparkWorkspace(self.spark, place, body, computing, listening)

    def assert_within_reach(self) -> None:
        """Raises RuntimeConfigError where Spark couldn't see the workspaces' files."""
        if self.login is None and not self.spark.sees_local_files:
            raise RuntimeConfigError(
                "SPARK_MASTER or SPARK_REMOTE names a Spark on other machines, which can't see the "
                "files of the embedded store",
                fix="unset it to compute here, or keep the workspaces in lakeFS: --on lakefs",
            )
