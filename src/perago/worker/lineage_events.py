"""What there is to tell of an attempt, as the event that OpenLineage has for it. Pure."""

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


def run_event(told: LineageEvent, job_namespace: str, dataset_namespace: str) -> RunEvent:
    """Datasets are in one namespace, that of their store, and jobs in another."""
    ours = lineage_of(told.execution)
    return RunEvent(
        eventType=RunState[told.transition],
        eventTime=told.at.isoformat(timespec="milliseconds"),
        run=Run(ours.id, _run_facets(told, job_namespace)),
        job=Job(job_namespace, ours.job, {"jobType": JobTypeJobFacet("BATCH", "PERAGO", "TASK")}),
        inputs=_inputs(told, dataset_namespace),
        outputs=_outputs(told, dataset_namespace),
        producer=PRODUCER,
    )


def _run_facets(told: LineageEvent, job_namespace: str) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {}
    if workflow := workflow_lineage_of(told.execution):
        facets["parent"] = _parent(workflow, job_namespace)
    if told.reason:
        facets["errorMessage"] = ErrorMessageRunFacet(told.reason, "PYTHON")
    return facets


def _parent(workflow: LineageRun, job_namespace: str) -> ParentRunFacet:
    return ParentRunFacet(ParentRun(workflow.id), ParentJob(job_namespace, workflow.job))


def _inputs(told: LineageEvent, namespace: str) -> list[InputDataset]:
    if told.input is None:
        return []
    found = _assertions(told, "pre")
    checks: dict[str, InputDatasetFacet] = {"dataQualityAssertions": found} if found else {}
    facets = _version(told.input)
    return [InputDataset(namespace, told.input.name, facets=facets, inputFacets=checks)]


def _outputs(told: LineageEvent, namespace: str) -> list[OutputDataset]:
    """One that nothing was published of has no version: then there is only what the checks found.

    OpenLineage knows those of inputs alone, so they stand among the facets of any dataset.
    """
    found = _assertions(told, "post")
    if told.input is None or (told.output is None and found is None):
        return []
    facets: dict[str, Any] = _version(told.output) if told.output else {}
    if found:
        facets["dataQualityAssertions"] = found
    written: dict[str, OutputDatasetFacet] = {}
    if told.files is not None:
        written["outputStatistics"] = OutputStatisticsOutputDatasetFacet(fileCount=told.files)
    return [OutputDataset(namespace, told.input.name, facets=facets, outputFacets=written)]


def _version(dataset: Dataset) -> dict[str, Any]:
    return {"version": DatasetVersionDatasetFacet(dataset.commit)}


def _assertions(told: LineageEvent, phase: str) -> DataQualityAssertionsDatasetFacet | None:
    checks = [_assertion(check) for check in told.checks if check.phase == phase]
    return DataQualityAssertionsDatasetFacet(checks) if checks else None


def _assertion(check: CheckResult) -> Assertion:
    return Assertion(
        assertion=check.rule,
        success=check.holds,
        severity="error",
        actual=None if check.broken_by is None else f"{check.broken_by} rows break it",
    )
