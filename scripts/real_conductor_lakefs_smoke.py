#!/usr/bin/env python
"""Tasks on a real Conductor with workspaces in a real lakeFS: what is promised, and what is there.

Everything is done by the ``perago`` command, as a person does it: ``register``, a worker by
``start``, workflows by ``run``. What came of it is read from Conductor by its REST API and from
lakeFS by its own client, not by Perago. Whatever is made here is deleted, also after Ctrl-C.

The servers are those of ``.env`` or the environment (CONDUCTOR_SERVER_URL, LAKECTL_…), or of
``perago stack up``. Where there are none, or with ``--stack``, a stack is brought up for the
purpose. A repository is made and deleted if PERAGO_LAKEFS_STORAGE_NAMESPACE says where; otherwise
name one by ``--repository``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.error import URLError

from conductor_scene import PERAGO, CommandFailed, Stage, Worker
from conductor_witness import ConductorWitness
from lakefs_scene import AFTER, BEFORE, Place
from lakefs_sdk.exceptions import ApiException
from lakefs_witness import Witness
from real_lakefs_publication_protocol_smoke import in_one_line, new_repository, undisturbed

from perago.cli.options import settings_for
from perago.errors import PeragoError, RuntimeConfigError
from perago.settings import load_settings
from perago.wiring import conductor_config, lakefs_config, open_lakefs

LATE = {"late.txt": b"late"}
QUICK_SECONDS = 30.0


# --- the cases ------------------------------------------------------------------------------------


def registration(stage: Stage) -> None:
    """Tasks and pipelines are registered as they are declared."""
    declared = stage.extracted()
    pushed = stage.perago("register", stage.module, "--json", *stage.there)
    stage.verify("`perago register` pushes every definition", pushed.document["ok"])
    for task in declared["tasks"]:
        there = stage.conductor.task_definition(task["name"])
        fields = [key for key in task if not key.endswith("Schema")]
        stage.verify(
            f"Conductor has the task {task['name']} with its retries and time-outs",
            [there.get(key) for key in fields] == [task[key] for key in fields],
        )
    for workflow in declared["workflows"]:
        there = stage.conductor.workflow_definition(workflow["name"])
        inputs = [
            [(one["name"], one["inputParameters"]) for one in w["tasks"]] for w in (there, workflow)
        ]
        stage.verify(f"Conductor has the workflow {workflow['name']}", inputs[0] == inputs[1])
    again = stage.perago("register", stage.module, "--dry-run", "--json", *stage.there)
    states = {one["state"] for one in again.document["definitions"]}
    stage.verify("looked at again, none of them differs", states == {"same"})
    for workflow in declared["workflows"]:
        sought = ("--workflow", workflow["name"], "--json")
        checked = stage.perago("check", stage.module, *sought, *stage.there)
        stage.verify(f"`perago check` finds {workflow['name']} safe", checked.document["ok"])


def completion(stage: Stage) -> None:
    """Local, no-op, read-only and workspace-free tasks complete, one of them at the second try."""
    branch, marker = stage.branch("good"), stage.home / "stumbled"
    a = stage.witness.head(branch)
    ended = stage.run("good", branch, f"stumble.marker={marker}")
    attempts = stage.attempts(ended.run)
    stage.verify("`perago run` ends well", (ended.code, ended.status) == (0, "COMPLETED"))
    stage.verify("Conductor has the workflow as COMPLETED", stage.status(ended.run) == "COMPLETED")
    made = ["write", "leave", "look", "think", "stumble", "stumble"]
    stage.verify(f"the attempts were {', '.join(made)}", [one.step for one in attempts] == made)
    stage.verify(
        "`perago run --json` and Conductor agree on every attempt's status and output",
        [(one["status"], one["output"] or {}) for one in ended.attempts]
        == [(one.status, one.output) for one in attempts],
    )
    write, leave, look, think, stumbled, stumble = attempts
    stage.verify(f"write took A, {a[:12]}", write.taken == a)
    stage.verify(
        f"write put out {write.ref[:12]}, a commit on A alone", stage.parents(write.ref) == [a]
    )
    stage.verify("it holds what write left, no more and no less", stage.files(write.ref) == AFTER)
    stage.verify("leave, which changed nothing, put out what it took", leave.ref == write.ref)
    stage.verify("look, which is read-only, put out what it took", look.ref == write.ref)
    stage.verify(
        "think, which has no workspace, put out a result only", list(think.output) == ["result"]
    )
    stage.verify(
        "stumble FAILED first, with its own reason and no output",
        (stumbled.status, stumbled.output) == ("FAILED", {})
        and "stumbled, as always the first time" in stumbled.reason,
    )
    stage.verify(
        "its retry took the same commit", (stumble.retry, stumble.taken) == (1, stumbled.taken)
    )
    stage.verify(
        f"and put out {stumble.ref[:12]}, a commit on write's alone",
        stage.parents(stumble.ref) == [write.ref],
    )
    took = [one.taken for one in attempts if one.taken]
    put_out = [one.ref for one in attempts if one.ref]
    stage.verify(
        "each task took what the one before put out",
        took == [a, write.ref, leave.ref, look.ref, look.ref] and put_out[-1] == ended.output_ref,
    )
    stage.verify("the branch's head is stumble's commit", stage.witness.head(branch) == stumble.ref)
    stage.verify(
        "the history since A is write, stumble: no empty commit",
        stage.witness.log(branch)[:3] == [stumble.ref, write.ref, a],
    )
    stage.verify("the branch holds all they left", stage.files(branch) == AFTER | LATE)
    counted = [one.result["files"] for one in (write, leave, look, stumble)]
    stage.verify("the results are what the bodies returned", counted == [3, 3, 3, 4])
    stage.verify(
        "what write printed is in its log in Conductor",
        "said by the task" in stage.conductor.logs(write.id),
    )
    where = ("--repository", stage.place.repository, "--branch", branch, "--limit", "2", "--json")
    shown = stage.perago("history", *where, *stage.there).document["commits"]
    stage.verify(
        "`perago history` shows which workflow and task made each commit",
        [(one["id"], one["run"], one["reference"], one["retry"]) for one in shown]
        == [
            (stumble.ref, ended.run, stumble.reference, 1),
            (write.ref, ended.run, write.reference, 0),
        ],
    )
    stage.verify_nothing_staged()


def giving_up(stage: Stage) -> None:
    """A task that gives up ends its workflow, and what came before it stays."""
    branch = stage.branch("bad")
    ended = stage.run("bad", branch)
    attempts = stage.attempts(ended.run)
    stage.verify("`perago run` ends with 1", (ended.code, ended.status) == (1, "FAILED"))
    stage.verify("Conductor has the workflow as FAILED", stage.status(ended.run) == "FAILED")
    stage.verify(
        "the attempts were write, refuse: no retry, and nothing after it",
        [one.step for one in attempts] == ["write", "refuse"],
    )
    write, refuse = attempts
    stage.verify(
        "refuse is FAILED_WITH_TERMINAL_ERROR, with its own reason and no output",
        (refuse.status, refuse.output) == ("FAILED_WITH_TERMINAL_ERROR", {})
        and "gave up for good" in refuse.reason,
    )
    stage.verify("the branch's head is write's commit", stage.witness.head(branch) == write.ref)
    stage.verify("the branch holds nothing that refuse left", stage.files(branch) == AFTER)
    stage.verify_nothing_staged()


def barring(stage: Stage) -> None:
    """A pre guardrail that the input violates ends the workflow before the body runs."""
    branch = stage.branch("barred")
    a = stage.witness.head(branch)
    ended = stage.run("barred", branch)
    (guarded,) = stage.attempts(ended.run)
    stage.verify("`perago run` ends with 1", (ended.code, ended.status) == (1, "FAILED"))
    stage.verify(
        "the one attempt is FAILED_WITH_TERMINAL_ERROR, and its reason names the guardrail",
        guarded.status == "FAILED_WITH_TERMINAL_ERROR"
        and "require_file('nowhere.txt')" in guarded.reason,
    )
    stage.verify("the branch is as it was", stage.witness.head(branch) == a)
    stage.verify_nothing_staged()


def malformed(stage: Stage) -> None:
    """Input that isn't as declared fails with the field's name, and nothing is published."""
    branch = stage.branch("malformed")
    a = stage.witness.head(branch)
    workspace = {"repository": stage.place.repository, "branch": branch, "ref": a}
    run = stage.start_as_somebody_else("barred", {"workspace": workspace})
    stage.verify("the workflow is FAILED", stage.ended(run) == "FAILED")
    attempts = stage.attempts(run)
    stage.verify("it was retried as declared", [one.step for one in attempts] == ["guarded"] * 3)
    stage.verify(
        "every attempt is FAILED and names workspace.ref_type",
        all(one.status == "FAILED" and "ref_type" in one.reason for one in attempts),
    )
    stage.verify("the branch is as it was", stage.witness.head(branch) == a)
    stage.verify("its files are as they were", stage.files(branch) == BEFORE)
    stage.verify_nothing_staged()


CASES = (completion, giving_up, barring, malformed)


# --- the show -------------------------------------------------------------------------------------


def play_all(stage: Stage) -> None:
    """Every case with one worker; whatever happens, nothing of it stays."""
    try:
        stage.place.prepare()
        play(stage, registration)
        with Worker(stage) as worker:
            for case in CASES:
                play(stage, case)
            stage.statements.begin("The worker stops when it is asked to")
            code, seconds = worker.stop()
            stage.verify(f"SIGTERM ends it with 0, in {seconds:.1f} s", code == 0)
            stage.verify("that was quick", seconds < QUICK_SECONDS)
            left = list(stage.settings.attempts.glob("*/"))
            stage.verify("no directory of an attempt is left", not left)
    finally:
        with undisturbed():
            clean_up(stage)


def play(stage: Stage, case: Callable[[Stage], None]) -> None:
    """One case to its end; an error in it is a failure of it, and no more."""
    stage.statements.begin(str(case.__doc__).rstrip("."))
    try:
        case(stage)
    except (PeragoError, ApiException, URLError, CommandFailed, LookupError, ValueError) as error:
        stage.verify(in_one_line(error), holds=False)


def clean_up(stage: Stage) -> None:
    stage.statements.begin("Afterwards")
    # An interrupted `perago run` may have started one that was not reported.
    runs = sorted({*stage.place.runs, *stage.conductor.runs(stage.name)})
    stage.place.runs[:] = runs
    left = stage.conductor.forget(runs, stage.name)
    stage.verify("no staging or target branch of any case is left", not stage.place.clean_up())
    stage.verify("no workflow or definition of any case is left", not left)


@contextmanager
def servers(home: Path, *, own: bool) -> Iterator[str]:
    """Where commands find them. A stack of its own is taken down again, with all its data."""
    if not own:
        yield "conductor"
        return
    os.environ["PERAGO_STACK"] = str(home / "stack")
    try:
        subprocess.run([PERAGO, "stack", "up"], check=True, stdout=subprocess.DEVNULL)
        yield "stack"
    finally:
        with undisturbed():
            subprocess.run(
                [PERAGO, "stack", "down", "--delete-data"], check=False, capture_output=True
            )


@contextmanager
def opened(repository: str | None, *, own: bool) -> Iterator[Stage]:
    """The servers, and the repository that was named, else one to be made."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perago-smoke-")))
        on = stack.enter_context(servers(home, own=own))
        settings = settings_for(home / "home", on, None)
        config = lakefs_config(settings)
        name = repository or new_repository(config)
        store = stack.enter_context(closing(open_lakefs(settings)))
        witness = stack.enter_context(closing(Witness(config, name)))
        place = Place(store, witness, home, is_own=repository is None)
        conductor = ConductorWitness(conductor_config(settings))
        yield Stage(place, conductor, settings, on, home)


def show(repository: str | None, *, own: bool) -> int:
    """Play all cases and print what was verified; 1 if anything failed."""
    with opened(repository, own=own) as stage:
        lakefs = f"lakeFS {stage.witness.version}, repository {stage.place.repository}"
        print(f"Conductor at {stage.conductor.address}, {lakefs}", flush=True)
        play_all(stage)
    verified, failed = stage.statements.totals
    print(f"\n{verified} verified, {failed} failed")
    return 1 if failed else 0


def has_servers() -> bool:
    """Whether both servers are named. Raises RuntimeConfigError if only one is."""
    settings = load_settings()
    named = {
        "CONDUCTOR_SERVER_URL": settings.conductor_url,
        "LAKECTL_SERVER_ENDPOINT_URL": settings.lakefs_endpoint,
    }
    missing = [name for name, value in named.items() if value is None]
    if len(missing) == 1:
        raise RuntimeConfigError(
            f"{missing[0]} isn't set, and the other server is named",
            fix="name both, or give --stack for two of its own",
        )
    return not missing


def main() -> int:
    """Exit code 0: all verified; 1: something failed; 2: wrong settings; 130: interrupted."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--repository", help="use this one instead of a repository of its own")
    parser.add_argument("--stack", action="store_true", help="bring up servers for the purpose")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be cleaned up after as well
    try:
        own = arguments.stack or not has_servers()
        return show(arguments.repository, own=own)
    except KeyboardInterrupt:
        print("interrupted; what was made is deleted", file=sys.stderr)
        return 130
    except (PeragoError, ApiException, URLError, subprocess.CalledProcessError) as error:
        print(f"error: {in_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, RuntimeConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
