"""Overwriting single partitions on lakeFS.

The committer that writes straight to an object store refuses ``partitionOverwriteMode=dynamic``:
it would have to know which partitions a job has written before it is over. Spark's own commit
protocol, which writes aside and renames, does it, with a committer that renames as well: with any
other it would leave the old files where they are. Both are settings of a session, not of a write.
So they are set for as long as such a write lasts.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.s3a import COMMITTER, RENAMING

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
_MODE_KEY = "spark.sql.sources.partitionOverwriteMode"
_MODE_OPTION = "partitionoverwritemode"
_NOTED = "_perago_partition_overwrite_mode"
_SAVE_MODE = "_perago_save_mode"
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
    writer.mode = _noting_mode(writer.mode)  # type: ignore[attr-defined]
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


def _noting_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def mode(self: Any, saveMode: str | None) -> Any:  # noqa: N803 - as PySpark calls it
        if saveMode:
            setattr(self, _SAVE_MODE, saveMode)
        return original(self, saveMode)

    return mode


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: Any, *arguments: Any, **named: Any) -> Any:
        settings = self._spark.conf
        given = (getattr(self, _SAVE_MODE, None), *arguments, *named.values())
        mode = getattr(self, _NOTED, None) or settings.get(_MODE_KEY)
        if (
            not any(map(_may_mean_overwriting, given))
            or mode.lower() != "dynamic"
            or settings.get(PROTOCOL_KEY, None) != COMMITTER[PROTOCOL_KEY]
        ):
            return original(self, *arguments, **named)
        with _one_at_a_time:
            before = {key: settings.get(key, None) for key in RENAMING}
            for key, value in RENAMING.items():
                settings.set(key, value)
            try:
                return original(self, *arguments, **named)
            finally:
                for key, value in before.items():
                    if value is None:
                        settings.unset(key)
                    else:
                        settings.set(key, value)

    return write


def _may_mean_overwriting(argument: object) -> bool:
    """Whether it is the mode, or a flag such as that of ``insertInto``. The wrong flag is slow."""
    return argument is True or (isinstance(argument, str) and argument.lower() == "overwrite")
