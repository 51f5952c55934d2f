"""A :class:`LineageEvent` as OpenLineage's own event. Pure."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.data_quality_assertions_dataset import (
    Assertion,
    DataQualityAssertionsDatasetFacet,
)
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.parent_run import Job as ParentJob
from openlineage.client.generated.parent_run import ParentRunFacet
from openlineage.client.generated.parent_run import Run as ParentRun

from perago.model.attempt import lineage_of, workflow_lineage_of

if TYPE_CHECKING:
    from openlineage.client.generated.base import InputDatasetFacet, OutputDatasetFacet, RunFacet

    from perago.model.attempt import LineageRun
    from perago.worker.lineage import CheckResult, Dataset, LineageEvent


PRODUCER = f"pkg:pypi/perago-runtime@{version('perago-runtime')}"


def run_event(event: LineageEvent, job_namespace: str, dataset_namespace: str) -> RunEvent:
    """Datasets are in the namespace of their store, jobs in another one."""
    ours = lineage_of(event.execution)
    return RunEvent(
        eventType=RunState[event.transition],
        eventTime=event.at.isoformat(timespec="milliseconds"),
        run=Run(ours.id, _run_facets(event, job_namespace)),
        job=Job(job_namespace, ours.job, {"jobType": JobTypeJobFacet("BATCH", "PERAGO", "TASK")}),
        inputs=_inputs(event, dataset_namespace),
        outputs=_outputs(event, dataset_namespace),
        producer=PRODUCER,
    )


def _run_facets(event: LineageEvent, job_namespace: str) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {}
    if workflow := workflow_lineage_of(event.execution):
        facets["parent"] = _parent(workflow, job_namespace)
    if event.reason:
        facets["errorMessage"] = ErrorMessageRunFacet(event.reason, "PYTHON")
    return facets


def _parent(workflow: LineageRun, job_namespace: str) -> ParentRunFacet:
    return ParentRunFacet(ParentRun(workflow.id), ParentJob(job_namespace, workflow.job))


def _inputs(event: LineageEvent, namespace: str) -> list[InputDataset]:
    if event.input is None:
        return []
    found = _assertions(event, "pre")
    checks: dict[str, InputDatasetFacet] = {"dataQualityAssertions": found} if found else {}
    facets = _version(event.input)
    return [InputDataset(namespace, event.input.name, facets=facets, inputFacets=checks)]


def _outputs(event: LineageEvent, namespace: str) -> list[OutputDataset]:
    """Without a publication there is no version, only the results of the checks.

    OpenLineage has checks only for inputs, so these are general facets of the dataset.
    """
    found = _assertions(event, "post")
    if event.input is None or (event.output is None and found is None):
        return []
    facets: dict[str, Any] = _version(event.output) if event.output else {}
    if found:
        facets["dataQualityAssertions"] = found
    written: dict[str, OutputDatasetFacet] = {}
    if event.files is not None:
        written["outputStatistics"] = OutputStatisticsOutputDatasetFacet(fileCount=event.files)
    return [OutputDataset(namespace, event.input.name, facets=facets, outputFacets=written)]


def _version(dataset: Dataset) -> dict[str, Any]:
    return {"version": DatasetVersionDatasetFacet(dataset.commit)}


def _assertions(event: LineageEvent, phase: str) -> DataQualityAssertionsDatasetFacet | None:
    checks = [_assertion(check) for check in event.checks if check.phase == phase]
    return DataQualityAssertionsDatasetFacet(checks) if checks else None


def _assertion(check: CheckResult) -> Assertion:
    return Assertion(
        assertion=check.rule,
        success=check.holds,
        severity="error",
        actual=None if check.broken_by is None else f"{check.broken_by} rows break it",
    )
