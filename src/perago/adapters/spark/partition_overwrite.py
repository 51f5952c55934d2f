"""Overwriting single partitions on lakeFS.

The committer that writes straight to an object store refuses ``partitionOverwriteMode=dynamic``:
it would have to know which partitions a job has written before it is over. Spark's own commit
protocol, which writes aside and renames, does it; and the protocol is a setting of a session, not
of a write. So it is set for as long as such a write lasts.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.s3a import COMMITTER, RENAMING_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
_MODE_KEY = "spark.sql.sources.partitionOverwriteMode"
_MODE_OPTION = "partitionoverwritemode"
_NOTED = "_perago_partition_overwrite_mode"
_WRITES = (
    "csv",
    "insertInto",
    "json",
    "orc",
    "parquet",
    "save",
    "saveAsTable",
    "text",
)

_one_at_a_time = threading.RLock()
_adapted: set[type] = set()


def adapt_writers(writer: type) -> None:
    """Have all writers of this class, classic or Connect's, choose the protocol. Once is enough."""
    if writer in _adapted:
        return
    _adapted.add(writer)
    writer.option = _noting_option(writer.option)  # type: ignore[attr-defined]
    writer.options = _noting_options(writer.options)  # type: ignore[attr-defined]
    for name in _WRITES:
        setattr(writer, name, _choosing(getattr(writer, name)))


def _noting_option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        if key.lower() == _MODE_OPTION:
            setattr(self, _NOTED, str(value))
        return original(self, key, value)

    return option


def _noting_options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **given: Any) -> Any:
        for key, value in given.items():
            if key.lower() == _MODE_OPTION:
                setattr(self, _NOTED, str(value))
        return original(self, **given)

    return options


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: Any, *arguments: Any, **named: Any) -> Any:
        settings = self._spark.conf
        direct = COMMITTER[PROTOCOL_KEY]
        mode = getattr(self, _NOTED, None) or settings.get(_MODE_KEY)
        if mode.lower() != "dynamic" or settings.get(PROTOCOL_KEY, None) != direct:
            return original(self, *arguments, **named)
        with _one_at_a_time:
            settings.set(PROTOCOL_KEY, RENAMING_PROTOCOL)
            try:
                return original(self, *arguments, **named)
            finally:
                settings.set(PROTOCOL_KEY, direct)

    return write
