"""What a Spark task's body is handed, and what the runtime sees of it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Protocol

from perago.adapters.spark.error_text import short_message
from perago.adapters.spark.files import (
    checked_format,
    format_of,
    is_match,
    readable,
    table_reader,
    without_wildcards,
    writable,
)
from perago.declare.guardrails import regex_of_glob
from perago.errors import SparkFailedError
from perago.model.progress import Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from perago.adapters.spark.engine import Spark
    from perago.adapters.spark.lineage import Listening
    from perago.model.tables import TableReport, TableRules, TableSource
    from perago.model.workspace import ChangeSet
    from perago.ports.engine import OnComputation


# --- Where Spark finds a workspace's files: the contract of the two places there are ---


class Place(Protocol):
    """One attempt's workspace. Paths are checked, relative to the prefix; "" is all of it."""

    @property
    def hadoop(self) -> Mapping[str, str]:
        """Settings by which Spark gets there."""
        ...

    def files(self, below: str = "") -> Iterator[str]:
        """The files below a path: of the input commit, or of what was staged."""
        ...

    def input(self, path: str) -> str:
        """A URI of the path at the input commit."""
        ...

    def output(self, path: str) -> str:
        """A URI of the path where it can be written, and read back."""
        ...

    def scan(self) -> ChangeSet:
        """What has become of the paths that were asked for as outputs; leftovers are removed.

        Raises UnsupportedFileError for what can't be stored, if that is known by now.
        """
        ...

    def look_at_staged(self, commit: str) -> None:
        """From now on :meth:`files` and :meth:`reading` are of that staging commit.

        Raises WorkspaceError if it has what may not be published.
        """
        ...

    def reading(self, path: str) -> str:
        """A URI of the path as a check is to see it: the input commit's, or as staged."""
        ...


_LOOK_SECONDS = 0.5
_LAST_LOOK_SECONDS = 5.0  # a driver that doesn't answer any more must not hold us up


class BodyWorkspace:
    """Implements :class:`perago.declare.workspace.SparkWorkspace`."""

    def __init__(self, session: SparkSession, place: Place, *, at_root: bool) -> None:
        self._session = session
        self._place = place
        self._at_root = at_root

    @property
    def spark(self) -> SparkSession:
        return self._session

    def input(self, path: str = "") -> str:
        return self._place.input(readable(path, at_root=self._at_root))

    def output(self, path: str) -> str:
        return self._place.output(writable(path, at_root=self._at_root))

    def table(self, path: str, *, format: str | None = None, **options: str) -> DataFrame:  # noqa: A002 - as Spark's own readers call it
        checked = readable(path, at_root=self._at_root)
        kind = checked_format(format) if format else format_of(checked, self._files_of(checked))
        reader = self._session.read.format(kind).options(**options)
        return reader.load(self._place.input(checked))

    def _files_of(self, path: str) -> Iterator[str]:
        root = without_wildcards(path)
        files = self._place.files(root)
        return files if root == path else (file for file in files if is_match(file, path))

    def files(self, pattern: str = "**") -> Sequence[str]:
        matches = re.compile(regex_of_glob(pattern, f"files({pattern!r})"), re.DOTALL).fullmatch
        return [path for path in self._place.files() if matches(path)]


class OpenSparkWorkspace:
    """Implements :class:`perago.ports.engine.OpenWorkspace`."""

    def __init__(
        self,
        spark: Spark,
        place: Place,
        body: BodyWorkspace,
        computing: OnComputation | None,
        listening: Listening | None = None,
        *,
        checks_staged_data: bool,
    ) -> None:
        self._spark = spark
        self._listening = listening
        self._place = place
        self.argument = body
        self.checks_staged_data = checks_staged_data
        self.fetched = self.moved = Transfer()
        self.notes: Sequence[str] = ()
        if listening and listening.problem:
            self.notes = (f"Spark's own lineage isn't told: {listening.problem}",)
        self._watch = _Watch(spark, computing) if computing else None
        self._reading: SparkSession | None = body.spark  # nobody else has used it yet

    @property
    def files(self) -> Sequence[str]:
        return list(self._place.files())

    def scan(self) -> ChangeSet:
        self._spark.cancel_jobs()
        self._reading = None  # the body's settings say what the body wants to see
        return self._place.scan()

    def look_at_staged(self, commit: str) -> None:
        self._place.look_at_staged(commit)

    def check_tables(
        self, rules: Sequence[TableRules], sources: Mapping[str, TableSource]
    ) -> Sequence[TableReport]:
        from perago.adapters.spark.table_checks import check_tables

        try:
            return check_tables(rules, self._read, sources)
        except Exception as error:
            if said := short_message(error):
                raise SparkFailedError(f"looking into the data failed: {said}") from error
            raise

    def _read(self, source: TableSource) -> DataFrame:
        if self._reading is None:
            self._reading = self._spark.fresh_session()
        kind = source.format or format_of(source.path, self._place.files(source.path))
        reader = table_reader(self._reading, kind, source.options)
        return reader.load(self._place.reading(source.path))

    def explain(self, error: BaseException) -> str | None:
        return short_message(error)

    def close(self) -> None:
        if self._watch:
            self._watch.stop()
        if self._listening:
            self._listening.close()
        self._spark.close_session()


class _Watch:
    """Tells how far Spark is while a workspace is open, in a thread of its own."""

    def __init__(self, spark: Spark, computing: OnComputation) -> None:
        self._spark = spark
        self._computing = computing
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="spark-progress")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_LAST_LOOK_SECONDS)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                progress = self._spark.progress()
            except Exception:  # noqa: BLE001 - a driver that is gone shows where it is used
                return
            if progress is not None:
                self._computing(progress)
