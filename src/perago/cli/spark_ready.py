"""What Spark needs of this machine, fetched before a run begins that will need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.cli.streams import tell

if TYPE_CHECKING:
    from perago.model.run import RunPlan
    from perago.settings import Settings


def get_spark_ready_for(plan: RunPlan, settings: Settings) -> None:
    """Nothing to do where none of its tasks needs Spark, or others run them.

    Raises RuntimeConfigError, saying what is missing.
    """
    from perago.declare.loading import find_task
    from perago.declare.signature import SPARK
    from perago.wiring import bring_spark

    if settings.orchestrator != "embedded":
        return
    if any(find_task(step.module, step.task_name).engine == SPARK for step in plan.steps):
        bring_spark(settings, tell)
