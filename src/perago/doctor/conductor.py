"""Checks of a Conductor: the connection, definitions, workers, and branches with two writers."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING

from perago.adapters.conductor.active_workflows import ACTIVE, innermost, search
from perago.adapters.conductor.client import ConductorClient
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.runs import ConductorRuns
from perago.adapters.conductor.workflows import branch_of
from perago.doctor.finding import NOTICEABLE_SECONDS, Finding, clock_difference
from perago.errors import (
    OrchestratorAccessError,
    OrchestratorError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
    RuntimeConfigError,
)
from perago.formatting import count
from perago.operations.declared import definitions_of
from perago.operations.run_follow import UNPOLLED_SECONDS, unpolled_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.adapters.conductor.active_workflows import WorkflowSummary
    from perago.adapters.conductor.client import ConductorConfig
    from perago.operations.declared import Declared
    from perago.settings import Settings


_NO_TASK = "perago-doctor"
_NAMED = 5


def diagnose_conductor(settings: Settings, *declared: Declared) -> Iterator[Finding]:
    """Check the connection, then what Conductor has.

    ``declared`` are the modules whose definitions and workers to look for. A failed check explains
    the ones after it, so they are left out.
    """
    from perago.wiring import conductor_config

    try:
        config = conductor_config(settings)
    except RuntimeConfigError as error:
        yield Finding.of_error("Conductor", error)
        return
    with closing(ConductorClient(config)) as api, closing(ConductorRuns(config)) as runs:
        server = _server(api, config)
        yield server
        if server.failed:
            return
        try:
            yield from _greeting(api)
            yield from _definitions(settings, declared)
            yield from _workers(api, runs, declared)
            yield from _writers(api, settings)
        except OrchestratorError as error:
            yield Finding.of_error("Conductor", error, "see Conductor's log")


def _server(api: ConductorClient, config: ConductorConfig) -> Finding:
    """Whether Conductor answers and accepts our key; it says that it lacks this task."""
    try:
        api.find(api_path("tasks", _NO_TASK), doing="checking that it answers")
    except OrchestratorUnavailableError as error:
        return Finding.of_error("Conductor", error)
    except OrchestratorAccessError as error:
        return Finding.of_error("Conductor key", error)
    except OrchestratorRefusedError as error:
        return Finding.of_error("Conductor address", error)
    known = "and knows our key" if config.key else "and asks for no key"
    return Finding("Conductor", "ok", f"it answers at {config.address} {known}")


def _greeting(api: ConductorClient) -> Iterator[Finding]:
    asked_at = time.time()
    try:
        answer = api.version()
    except OrchestratorRefusedError:
        yield Finding("Conductor version", "ok", "unknown: the server doesn't say")
        return
    took = time.time() - asked_at
    version = answer.body.decode(errors="replace").strip().strip('"')
    yield Finding("Conductor version", "ok", f"{version:.40}")
    ahead = clock_difference(answer.date, asked_at + took / 2)
    if ahead is None:
        yield Finding("Conductor clock", "ok", "unknown: the server sends no time")
    elif abs(ahead) > NOTICEABLE_SECONDS:
        direction = "ahead of" if ahead > 0 else "behind"
        detail = f"the server's is {abs(ahead):.0f} s {direction} ours: its times are wrong"
        yield Finding("Conductor clock", "warn", detail, "synchronise both clocks (NTP)")
    else:
        yield Finding("Conductor clock", "ok", "the server's and ours agree")


def _definitions(settings: Settings, declared: tuple[Declared, ...]) -> Iterator[Finding]:
    from perago.operations.registration import differences
    from perago.wiring import open_definitions

    if not declared:
        return
    ours = definitions_of(*declared)
    targets = " ".join(one.target for one in declared)
    with closing(open_definitions(settings)) as server:
        problems = differences(server, ours.tasks, ours.workflows)
    for problem in problems:
        yield Finding("definition", "fail", problem.message, f"`perago register {targets}`")
    if not problems:
        number = count(len(ours.tasks) + len(ours.workflows), "definition")
        yield Finding("definitions", "ok", f"{number} registered as declared")
    for warning in ours.warnings:
        detail, _, fix = warning.partition("; fix: ")
        yield Finding("lease", "warn", detail, fix)
    if not ours.warnings:
        yield Finding("lease", "ok", "every lease covers its task's publish budget")


def _workers(
    api: ConductorClient, runs: ConductorRuns, declared: tuple[Declared, ...]
) -> Iterator[Finding]:
    """Find tasks that no worker polls for: those of the modules, and those in a queue."""
    waiting = _waiting(api)
    modules = {task.name: one.target for one in declared for task in one.tasks}
    names = list(dict.fromkeys([*modules, *waiting]))
    unpolled = unpolled_tasks(runs, names, time.time())
    for name in unpolled:
        number = waiting.get(name, 0)
        queued = f", and {number} wait" if number else ""
        detail = f"no worker has polled for {name} in the last {UNPOLLED_SECONDS:.0f} s{queued}"
        module = modules.get(name, "MODULE").partition(":")[0]
        yield Finding("worker", "warn", detail, f"`perago start {module}`")
    if not unpolled:
        yield Finding("workers", "ok", f"{count(len(names), 'task')} with one, or nothing to do")


def _waiting(api: ConductorClient) -> Mapping[str, int]:
    """How many deliveries wait for each task that workers poll for, if any do."""
    sizes = api.read(api_path("tasks", "queue", "all"), doing="reading the queues")
    found = sizes.items() if isinstance(sizes, dict) else ()
    # Conductor's own task types are in capitals; its internal queues begin with an underscore.
    return {
        name: size for name, size in found if size and not (name.isupper() or name.startswith("_"))
    }


def _writers(api: ConductorClient, settings: Settings) -> Iterator[Finding]:
    """Find branches that more than one active workflow writes, against the single-writer rule."""
    hits, _ = search(api, ACTIVE, doing="listing the active workflows")
    active = [hit for hit in hits if hit.status.is_active]
    writers: defaultdict[tuple[str, str], list[WorkflowSummary]] = defaultdict(list)
    for hit in active:
        workflow = api.find(
            api_path("workflow", hit.id, includeTasks="false"), doing=f"reading workflow {hit.id}"
        )
        if target := branch_of(workflow):
            writers[target].append(hit)
    several = {target: innermost(found) for target, found in writers.items()}
    several = {target: found for target, found in several.items() if len(found) > 1}
    for (repository, branch), found in several.items():
        named = ", ".join(hit.id for hit in sorted(found, key=lambda hit: hit.age_order)[:_NAMED])
        detail = f"{len(found)} active workflows write {repository}/{branch}: {named}"
        fix = "`perago cancel` all but one; with PERAGO_SINGLE_WRITER=enforce workers refuse it"
        yield Finding("single writer", "fail", detail, fix)
    if not several:
        rule = f"PERAGO_SINGLE_WRITER={settings.single_writer}"
        detail = f"{count(len(active), 'active workflow')}, each with a branch of its own; {rule}"
        yield Finding("single writer", "ok", detail)
