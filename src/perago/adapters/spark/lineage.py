"""OpenLineage's listener for Spark, one for each attempt: what it tells is a child of that.

The listener is told its parent when it begins and never again, while a driver of ours goes on from
attempt to attempt. So it isn't one of ``spark.extraListeners``: each attempt gets its own, which is
added to the driver and taken away again. What it is told stays out of Spark's settings, where
everybody could read it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.error_text import short_message
from perago.model.attempt import lineage_of, workflow_lineage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from perago.model.attempt import Execution

PACKAGE = "io.openlineage:openlineage-spark_2.13:1.53.0"

_JAR = "openlineage-spark"
_JARS_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_DRAIN_MILLISECONDS = 5000


def with_listener(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a driver that has the listener's jar: theirs, if they name one."""
    completed = dict(settings)
    if not any(_JAR in settings.get(key, "") for key in _JARS_SETTINGS):
        named = settings.get("spark.jars.packages")
        completed["spark.jars.packages"] = f"{named},{PACKAGE}" if named else PACKAGE
    return completed


@dataclass(frozen=True, slots=True)
class SparkLineage:
    """``transport`` is where it is sent, where the listener doesn't find that out by itself."""

    namespace: str
    transport: Mapping[str, str] = field(repr=False)

    def listen(self, session: SparkSession, execution: Execution) -> Listening:
        """Have all that Spark computes told as the execution's own, until that is closed.

        Never raises: see :attr:`Listening.problem`.
        """
        try:
            return Listening(session, listener_settings(self, execution))
        except Exception as error:  # noqa: BLE001 - without it the task works as well
            return Listening(None, {}, problem=short_message(error) or str(error))


def listener_settings(lineage: SparkLineage, execution: Execution) -> dict[str, str]:
    """What the listener of one execution is told, by the names that it has for it."""
    ours, workflow = lineage_of(execution), workflow_lineage_of(execution)
    settings = {
        "namespace": lineage.namespace,
        "appName": f"{ours.job}.spark",
        "parentJobNamespace": lineage.namespace,
        "parentJobName": ours.job,
        "parentRunId": ours.id,
        **{f"transport.{name}": value for name, value in lineage.transport.items()},
    }
    if workflow is not None:
        settings |= {
            "rootParentJobNamespace": lineage.namespace,
            "rootParentJobName": workflow.job,
            "rootParentRunId": workflow.id,
        }
    return {f"spark.openlineage.{name}": value for name, value in settings.items()}


class Listening:
    """A listener at work. ``problem`` says why there is none."""

    def __init__(
        self, session: Any, settings: Mapping[str, str], *, problem: str | None = None
    ) -> None:
        self.problem = problem
        self._listener: Any = None
        if session is None:
            return
        self._jvm = session._jvm  # noqa: SLF001 - PySpark has no other way
        self._context = session._jsc.sc()  # noqa: SLF001
        conf = self._context.getConf()  # a copy
        for key, value in settings.items():
            conf.set(key, value)
        self._listener = self._jvm.io.openlineage.spark.agent.OpenLineageSparkListener(conf)
        self._begin()

    def close(self) -> None:
        """Let it hear out what has happened, for a while. Never raises."""
        if self._listener is None:
            return
        with suppress(Exception):  # a driver that is gone, or whoever takes it is too slow
            self._context.listenerBus().waitUntilEmpty(_DRAIN_MILLISECONDS)
        with suppress(Exception):
            self._context.removeSparkListener(self._listener)
            self._end()

    def _begin(self) -> None:
        """As if an application had begun now: to the listener, an attempt is one."""
        events, nothing = self._jvm.org.apache.spark.scheduler, self._jvm.scala.Option.empty()
        name, user = self._context.appName(), self._context.sparkUser()
        self._listener.onApplicationStart(
            events.SparkListenerApplicationStart(
                name, nothing, _now(), user, nothing, nothing, nothing
            )
        )
        self._context.addSparkListener(self._listener)

    def _end(self) -> None:
        events, nothing = self._jvm.org.apache.spark.scheduler, self._jvm.scala.Option.empty()
        self._listener.onApplicationEnd(events.SparkListenerApplicationEnd(_now(), nothing))


def _now() -> int:
    return time.time_ns() // 1_000_000
