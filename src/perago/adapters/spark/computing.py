"""What an attempt needs of Spark, whichever way Spark is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from perago.model.outcome import Computation


class Spark(Protocol):
    """One for a process, started when first needed and kept between attempts."""

    @property
    def sees_local_files(self) -> bool:
        """Whether all of it runs on this machine."""
        ...

    def load(self) -> None:
        """Import PySpark. Raises RuntimeConfigError if it isn't installed."""
        ...

    def bring(self) -> None:
        """Fetch what this machine lacks for it, once and for all.

        Raises RuntimeConfigError, saying what is missing and can't be fetched.
        """
        ...

    def start(self) -> None:
        """Have it ready; returns at once if it is. Safe to call from any thread.

        Raises RuntimeConfigError, saying what is missing or can't be reached.
        """
        ...

    def begin(self, name: str, hadoop: Mapping[str, str]) -> SparkSession:
        """A session of its own for one attempt, with these settings for its files.

        Called in the thread that runs the body. Raises as :meth:`start` does.
        """
        ...

    def headway(self) -> Computation | None:
        """How far its jobs are, from any thread; None if nothing is being computed."""
        ...

    def end_jobs(self) -> None:
        """Cancel what is still being computed, and return when nothing is.

        Raises SparkFailedError if it doesn't end.
        """
        ...

    def afresh(self) -> SparkSession:
        """A session as the attempt's was at first: without what its body has set or cached."""
        ...

    def end(self) -> None:
        """End the attempt's session with all it has set, registered and cached. Never raises."""
        ...

    def stop(self) -> None:
        """Stop it for good. Never raises."""
        ...
