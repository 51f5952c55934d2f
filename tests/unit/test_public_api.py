"""The public names, by who imports them: adding or dropping one is a decision, made here.

docs/reference/public-api.md explains each of them.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import perago
import perago.ports
import perago.testing

FOR_TASK_AUTHORS = [
    "ExecutionLimits",
    "PeragoError",
    "Pipeline",
    "PublishBudget",
    "RetryPolicy",
    "SparkWorkspace",
    "Task",
    "TaskControls",
    "TaskDefinitionError",
    "TaskExecutionError",
    "TaskFailed",
    "TaskTerminalError",
    "TimeoutPolicy",
    "WorkspaceSpec",
    "forbid_glob",
    "pipeline",
    "require_dir",
    "require_file",
    "require_glob",
    "require_table",
    "task",
]

FOR_ADAPTER_AUTHORS = [
    "FAILPOINTS",
    "AnswerLostError",
    "Atomicity",
    "Attempt",
    "AttemptRecord",
    "AttemptSnapshot",
    "AttemptStep",
    "Branch",
    "BranchBusyError",
    "BranchExistsError",
    "BranchNotFoundError",
    "ChangeSet",
    "Clock",
    "ColumnRule",
    "Commit",
    "CommitNotFoundError",
    "Computation",
    "CorruptObjectError",
    "DefinitionDiffersError",
    "Definitions",
    "Delivery",
    "Difference",
    "DifferenceKind",
    "Download",
    "Engine",
    "Execution",
    "Failpoints",
    "Fetched",
    "FetchedFile",
    "HeadMovedError",
    "Journal",
    "Lease",
    "NoFailpoints",
    "NoLease",
    "NotNullRule",
    "ObjectEntry",
    "OpenWorkspace",
    "Orchestrator",
    "OrchestratorAccessError",
    "OrchestratorError",
    "OrchestratorRefusedError",
    "OrchestratorUnavailableError",
    "PeragoError",
    "ReferenceRule",
    "ReportReceipt",
    "RepositoryExistsError",
    "RepositoryNotFoundError",
    "ResultField",
    "RowsRule",
    "RuleResult",
    "RunBusyError",
    "RunError",
    "RunNotFoundError",
    "RunPlan",
    "RunRecord",
    "RunStatus",
    "Runs",
    "RuntimeConfigError",
    "SchemaRule",
    "SharedRuns",
    "Signature",
    "SilentJournal",
    "StepPlan",
    "Store",
    "StoreAccessError",
    "StoreError",
    "StoreFullError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "SystemClock",
    "TableReport",
    "TableRules",
    "TableSource",
    "TaskReport",
    "TaskStatus",
    "Transfer",
    "UniqueRule",
    "UnknownAttemptError",
    "UnsafeKeyError",
    "UnsupportedFileError",
    "Upload",
    "WhereRule",
    "WorkspaceChangedError",
    "WorkspaceError",
    "WorkspaceRef",
]

FOR_TEST_AUTHORS = [
    "Bench",
    "CanonicalTrees",
    "ConditionalMerges",
    "ConditionalRelocations",
    "ConditionalUpdates",
    "EngineConformance",
    "FaultyStore",
    "InjectedFaults",
    "ManualClock",
    "OrchestratorBench",
    "OrchestratorConformance",
    "PathArgument",
    "RecordingJournal",
    "StoreConformance",
    "TaskTrial",
    "UnconditionalMerges",
    "UnconditionalRelocations",
    "UnconditionalUpdates",
    "after",
    "duplicate",
    "followed_by",
    "healthy",
    "lose_answer",
    "lose_request",
    "parse_faults",
    "refuse",
    "refuse_after_applying",
    "run_task",
    "unavailable",
]

PACKAGES = {
    perago: FOR_TASK_AUTHORS,
    perago.ports: FOR_ADAPTER_AUTHORS,
    perago.testing: FOR_TEST_AUTHORS,
}
EACH_NAME = [(package, name) for package, names in PACKAGES.items() for name in names]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("package", "names"), PACKAGES.items())
def test_the_package_exports_these_names_and_no_other(package, names):
    assert package.__all__ == names
    assert dir(package) == sorted(names)


@pytest.mark.parametrize("name", FOR_TASK_AUTHORS)
def test_a_task_authors_export_can_be_used(name):
    assert getattr(perago, name).__name__ == name


@pytest.mark.parametrize(("package", "name"), EACH_NAME)
def test_an_export_can_be_imported(package, name):
    value = getattr(package, name)
    assert value
    assert getattr(value, "__name__", name) == name


@pytest.mark.parametrize("name", FOR_TEST_AUTHORS)
def test_a_test_authors_export_is_explained_by_the_package(name):
    assert f"``{name}``" in perago.testing.__doc__


def test_the_reference_page_lists_exactly_the_public_names():
    page = (ROOT / "docs/reference/public-api.md").read_text()
    _, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    for (package, names), section in zip(PACKAGES.items(), sections, strict=True):
        listed = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
        found = [name for cell in listed for name in re.findall(r"`(\w+)`", cell)]
        assert sorted(found) == sorted(names), package.__name__


@pytest.mark.parametrize("name", ["MetricSpec", "MetricRecorder"])
def test_metrics_of_a_task_are_said_not_to_be_there(name):
    with pytest.raises(perago.TaskDefinitionError, match=f"there is no {name} here"):
        exec(f"from perago import {name}")  # noqa: S102 - the statement as a module has it


@pytest.mark.parametrize(
    ("package", "name"),
    [(perago, "tsak"), (perago.ports, "Stroe"), (perago.testing, "run_tsak")],
)
def test_another_name_is_an_attribute_error(package, name):
    message = f"'{package.__name__}' has no attribute '{name}'"
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(package, name)


@pytest.mark.parametrize("package", [perago, perago.ports, perago.testing])
def test_importing_the_package_imports_nothing_heavy(package):
    script = f"import sys, {package.__name__}; print(int('pydantic' in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "0"


@pytest.mark.parametrize(
    ("name", "now"),
    [("Schedule", "schedule"), ("AT_THE_END", "invariants"), ("FaultyWire", "wire")],
)
def test_a_harness_that_is_no_longer_shipped_says_where_it_is(name, now):
    with pytest.raises(
        AttributeError, match=rf"perago\.testing\.{name} .* tests/support/{now}\.py"
    ):
        getattr(perago.testing, name)


@pytest.mark.parametrize("name", perago.testing._MOVED)  # noqa: SLF001 - the list is private
def test_where_a_harness_is_said_to_be_it_is(name):
    assert (ROOT / "tests/support" / f"{name}.py").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_of_a_package_has_the_name_of_an_export(package):
    """Python would put the module in the export's place as soon as it is imported."""
    modules = {path.stem for path in Path(package.__file__).parent.iterdir()}
    assert modules.isdisjoint(package.__all__)
