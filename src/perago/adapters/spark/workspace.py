"""A Spark task's workspace: what its body gets, and what the flow sees of it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Protocol

from perago.adapters.spark.error_text import short_message
from perago.adapters.spark.files import (
    checked_format,
    format_of,
    input_path,
    is_match,
    output_path,
    table_reader,
    without_wildcards,
)
from perago.declare.guardrails import regex_of_glob
from perago.errors import SparkFailedError
from perago.model.progress import Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from perago.adapters.spark.engine import Spark
    from perago.adapters.spark.lineage import AttemptListener
    from perago.model.tables import TableReport, TableRules, TableSource
    from perago.model.workspace import ChangeSet
    from perago.ports.engine import OnComputation

_POLL_SECONDS = 0.5
_JOIN_SECONDS = 5.0  # a driver may answer no more


class Location(Protocol):
    """Where Spark finds the files of one attempt's workspace: on this machine, or in lakeFS.

    Paths are checked and relative to the prefix; "" is all of it.
    """

    @property
    def hadoop(self) -> Mapping[str, str]:
        """Hadoop's settings by which Spark reaches the files."""
        ...

    def files(self, below: str = "") -> Iterator[str]:
        """Yield the files below a path: of the input commit, or of what was staged."""
        ...

    def input(self, path: str) -> str:
        """Return a URI of the path at the input commit."""
        ...

    def output(self, path: str) -> str:
        """Return a URI where the path can be written, and read back.

        Raises SparkPathError in a read-only task, or if the path would lie below a file.
        """
        ...

    def scan(self) -> ChangeSet:
        """Remove leftovers, and return what has changed below the outputs.

        Raises UnsupportedFileError for what can't be stored, if that is known by now.
        """
        ...

    def look_at_staged(self, commit: str) -> None:
        """From now on :meth:`files` and :meth:`input_for_checks` read that staging commit.

        Raises WorkspaceError if it has something that may not be published.
        """
        ...

    def input_for_checks(self, path: str) -> str:
        """Return a URI of the path for checks: at the input commit, or as staged."""
        ...


class BodyWorkspace:
    """Implements :class:`perago.declare.workspace.SparkWorkspace`."""

    def __init__(self, session: SparkSession, location: Location, *, at_root: bool) -> None:
        self._session = session
        self._location = location
        self._at_root = at_root

    @property
    def spark(self) -> SparkSession:
        return self._session

    def input(self, path: str = "") -> str:
        return self._location.input(input_path(path, at_root=self._at_root))

    def output(self, path: str) -> str:
        return self._location.output(output_path(path, at_root=self._at_root))

    def table(self, path: str, *, format: str | None = None, **options: str) -> DataFrame:  # noqa: A002 - as Spark's own readers call it
        checked = input_path(path, at_root=self._at_root)
        kind = checked_format(format) if format else format_of(checked, self._files_of(checked))
        reader = self._session.read.format(kind).options(**options)
        return reader.load(self._location.input(checked))

    def _files_of(self, path: str) -> Iterator[str]:
        root = without_wildcards(path)
        files = self._location.files(root)
        return files if root == path else (file for file in files if is_match(file, path))

    def files(self, pattern: str = "**") -> Sequence[str]:
        matches = re.compile(regex_of_glob(pattern, f"files({pattern!r})"), re.DOTALL).fullmatch
        return [path for path in self._location.files() if matches(path)]


class OpenSparkWorkspace:
    """Implements :class:`perago.ports.engine.OpenWorkspace`."""

    def __init__(
        self,
        spark: Spark,
        location: Location,
        body: BodyWorkspace,
        computing: OnComputation | None,
        listener: AttemptListener | None = None,
        *,
        checks_staged_data: bool,
    ) -> None:
        self._spark = spark
        self._location = location
        self._listener = listener
        self.argument = body
        self.checks_staged_data = checks_staged_data
        self.fetched = self.moved = Transfer()
        self.notes: Sequence[str] = ()
        if listener and listener.problem:
            self.notes = (f"Spark's own lineage isn't sent: {listener.problem}",)
        self._progress = _ProgressThread(spark, computing) if computing else None
        self._check_session: SparkSession | None = body.spark  # before the body has changed it

    @property
    def files(self) -> Sequence[str]:
        return list(self._location.files())

    def scan(self) -> ChangeSet:
        self._spark.cancel_jobs()
        self._check_session = None  # the body may have changed its settings
        return self._location.scan()

    def look_at_staged(self, commit: str) -> None:
        self._location.look_at_staged(commit)

    def check_tables(
        self, rules: Sequence[TableRules], sources: Mapping[str, TableSource]
    ) -> Sequence[TableReport]:
        from perago.adapters.spark.table_checks import check_tables

        try:
            return check_tables(rules, self._read, sources)
        except Exception as error:
            if message := short_message(error):
                raise SparkFailedError(f"checking the tables failed: {message}") from error
            raise

    def _read(self, source: TableSource) -> DataFrame:
        if self._check_session is None:
            self._check_session = self._spark.fresh_session()
        kind = source.format or format_of(source.path, self._location.files(source.path))
        reader = table_reader(self._check_session, kind, source.options)
        return reader.load(self._location.input_for_checks(source.path))

    def explain(self, error: BaseException) -> str | None:
        return short_message(error)

    def close(self) -> None:
        if self._progress:
            self._progress.stop()
        if self._listener:
            self._listener.close()
        self._spark.close_session()


class _ProgressThread:
    """Reports Spark's progress while a workspace is open."""

    def __init__(self, spark: Spark, computing: OnComputation) -> None:
        self._spark = spark
        self._computing = computing
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True, name="spark-progress")
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_SECONDS)

    def _report(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                progress = self._spark.progress()
            except Exception:  # noqa: BLE001 - the body fails too if the driver has ended
                return
            if progress is not None:
                self._computing(progress)
