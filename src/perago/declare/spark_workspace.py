"""What the body of a Spark task is handed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


class SparkWorkspace(Protocol):
    """The workspace of one attempt, for Spark's own readers and writers.

    Inputs are read at the input commit, whatever is written meanwhile. Outputs go to a private
    place that starts as that commit: overwriting, appending and overwriting single partitions mean
    what they always do, and what was written can be read back from there. Paths are relative to
    the task's prefix and can't leave it.
    """

    @property
    def spark(self) -> SparkSession:
        """This attempt's own session: its temporary views and settings end with it."""
        ...

    def input(self, path: str = "") -> str:
        """Where the input commit has ``path``, for ``spark.read``; may hold wildcards.

        Raises SparkPathError for a path that isn't below the prefix.
        """
        ...

    def output(self, path: str) -> str:
        """Where to write ``path``: one URI for ``df.write``, a table's directory.

        Raises SparkPathError for a path that isn't below the prefix and in a read-only task, and
        FenceError if the attempt no longer counts.
        """
        ...

    def table(self, path: str, *, format: str | None = None, **options: str) -> DataFrame:  # noqa: A002 - as Spark's own readers call it
        """Read a table of the input commit; ``format`` is told from its files' names.

        Raises SparkPathError for a path that isn't below the prefix, a table without files, and
        a format that can't be kept in a workspace.
        """
        ...

    def files(self, pattern: str = "**") -> Sequence[str]:
        """The files of the input commit whose path matches, as in ``require_glob``."""
        ...
