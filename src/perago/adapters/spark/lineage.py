"""OpenLineage's listener for Spark. Each attempt gets its own, so that its events have a parent.

The listener reads its parent from its settings when it is made, and one driver serves attempt after
attempt. So it isn't one of ``spark.extraListeners``: it is added to the driver for an attempt and
removed afterwards. Its settings may hold a secret; they stay out of Spark's own, which every task
can read.
"""

# ruff: noqa: SLF001 - PySpark has no public way to the JVM

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
    """Add the listener's jar to a driver's settings, unless they name one."""
    completed = dict(settings)
    if not any(_JAR in settings.get(key, "") for key in _JARS_SETTINGS):
        named = settings.get("spark.jars.packages")
        completed["spark.jars.packages"] = f"{named},{PACKAGE}" if named else PACKAGE
    return completed


@dataclass(frozen=True, slots=True)
class SparkLineage:
    """Where Spark's lineage goes.

    ``transport`` is empty if OpenLineage's Java client finds its transport by itself.
    """

    namespace: str
    transport: Mapping[str, str] = field(repr=False)

    def listen(self, session: SparkSession, execution: Execution) -> AttemptListener:
        """Report what Spark computes as the execution's own, until the listener is closed.

        Never raises: see :attr:`AttemptListener.problem`.
        """
        try:
            return AttemptListener(session, listener_settings(self, execution))
        except Exception as error:  # noqa: BLE001 - the task doesn't need it
            return AttemptListener(None, {}, problem=short_message(error) or str(error))


def listener_settings(lineage: SparkLineage, execution: Execution) -> dict[str, str]:
    """Return the settings of one execution's listener."""
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


class AttemptListener:
    """An attempt's listener, attached to the driver. ``problem`` says why there is none."""

    def __init__(
        self, session: Any, settings: Mapping[str, str], *, problem: str | None = None
    ) -> None:
        self.problem = problem
        self._listener: Any = None
        if session is None:
            return
        self._jvm = session._jvm
        self._context = session._jsc.sc()
        conf = self._context.getConf()  # a copy
        for key, value in settings.items():
            conf.set(key, value)
        self._listener = self._jvm.io.openlineage.spark.agent.OpenLineageSparkListener(conf)
        self._attach()

    def close(self) -> None:
        """Wait until it has processed all events, for a while, and remove it. Never raises."""
        if self._listener is None:
            return
        with suppress(Exception):  # the driver has ended, or the receiver is too slow
            self._context.listenerBus().waitUntilEmpty(_DRAIN_MILLISECONDS)
        with suppress(Exception):
            self._context.removeSparkListener(self._listener)
            self._report_end()

    def _attach(self) -> None:
        """Report the start of an application: the listener takes an attempt for one."""
        events, nothing = self._jvm.org.apache.spark.scheduler, self._jvm.scala.Option.empty()
        name, user = self._context.appName(), self._context.sparkUser()
        self._listener.onApplicationStart(
            events.SparkListenerApplicationStart(
                name, nothing, _now(), user, nothing, nothing, nothing
            )
        )
        self._context.addSparkListener(self._listener)

    def _report_end(self) -> None:
        events, nothing = self._jvm.org.apache.spark.scheduler, self._jvm.scala.Option.empty()
        self._listener.onApplicationEnd(events.SparkListenerApplicationEnd(_now(), nothing))


def _now() -> int:
    return time.time_ns() // 1_000_000
