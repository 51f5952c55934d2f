#!/usr/bin/env python
"""Many workflows on real servers, while workers and servers are killed: everything must come out.

Brings up Conductor and lakeFS in a temporary directory, and two workers with `perago start -j 2`.
Each workflow of six tasks (three that change files, one that changes nothing, a read-only one, one
without a workspace) has a branch of its own. Meanwhile executors, pollers and supervisors are ended
by SIGKILL, half of them inside publishing, and so are both servers, which start again where they
were. In the end all have to be completed, every accepted output has to be on its branch, once, and
nothing else may be left. Who is killed when is decided by the seed that is printed.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

from conductor_witness import ConductorWitness
from lakefs_witness import Witness
from soak_chaos import Chaos, planned
from soak_tasks import BEFORE, LEASE_SECONDS, PREFIX, given_to, soak
from soak_verdict import Started, Verdict, judge
from soak_workers import Worker, register, wait_until_gone

from perago.adapters.conductor.client import ConductorConfig
from perago.operations.fence_install import install_fence
from perago.settings import Settings, load_settings
from perago.stack.test_server import start_conductor, start_lakefs
from perago.wiring import lakefs_config, open_lakefs

WORKERS = 2
_OURS = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "PYTHONDONTWRITEBYTECODE")
REPOSITORIES = 4
MOST_AT_A_TIME = 24
HELD_BACK = 4
"""How many workflows wait until the last blow has fallen, so that it hits a worker that is busy."""

CLEARING_SECONDS = 120.0
"""What workers leave is cleared within half a minute; a directory without a name takes a minute."""

STOPPING_SECONDS = 60.0
LOOK_SECONDS = 1.0
TICK_SECONDS = 0.02
PROBLEMS_SHOWN = 20


class Conductor(ConductorWitness):
    """Which workflows are still on their way."""

    def active(self, name: str, count: int) -> set[str]:
        """Their ids, as far as the server's index knows by now."""
        query = quote(f"workflowType='{name}' AND status IN (RUNNING,PAUSED)")
        found = self._ask("GET", f"workflow/search?start=0&size={count}&query={query}")
        return {hit["workflowId"] for hit in found["results"]}

    def has_ended(self, run: str) -> bool:
        found = self._ask("GET", f"workflow/{run}?includeTasks=false")
        return found["status"] not in ("RUNNING", "PAUSED")


@dataclass
class Soak:
    """The workflows on their way, and how far they are."""

    conductor: Conductor
    repositories: Mapping[str, Witness]
    chaos: Chaos
    total: int
    started: list[Started] = field(default_factory=list)
    active: dict[str, Started] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    _looked_at: float = 0.0

    @property
    def ended(self) -> int:
        return len(self.started) - len(self.active)

    @property
    def is_over(self) -> bool:
        return self.ended == self.total and not self.chaos.away

    def turn(self) -> None:
        """One round: start what may be, see what has ended, kill who is due."""
        if not self.chaos.away:
            self._start_some()
            if time.monotonic() - self._looked_at > LOOK_SECONDS:
                self._look()
        for worker in self.chaos.workers:
            if not worker.is_running:
                worker.start()
        self.chaos.deal(self.ended)

    def _start_some(self) -> None:
        while len(self.started) < self.total and len(self.active) < MOST_AT_A_TIME:
            is_held_back = len(self.started) >= self.total - HELD_BACK
            if is_held_back and self.active and not self.chaos.is_over:
                return
            self._start_one(len(self.started))

    def _start_one(self, number: int) -> None:
        """No server is down or about to be killed, so the answer comes."""
        repository = list(self.repositories)[number % len(self.repositories)]
        witness, branch = self.repositories[repository], f"workflow-{number}"
        witness.create_branch(branch, witness.default_branch())
        base = witness.head(branch)
        where = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": base}
        given = {"workspace": where, "params": given_to(number)}
        started = Started(number, self.conductor.start(soak.name, given), repository, branch, base)
        self.started.append(started)
        self.active[started.id] = started

    def _look(self) -> None:
        """The index lags behind, so what it doesn't list is asked for itself."""
        try:
            listed = self.conductor.active(soak.name, 4 * MOST_AT_A_TIME)
            for workflow in [id_ for id_ in self.active if id_ not in listed]:
                if self.conductor.has_ended(workflow):
                    del self.active[workflow]
        except (OSError, HTTPException):
            return  # it has just been started, and is asked again
        self._looked_at = time.monotonic()

    def line(self) -> str:
        counts, left = self.chaos.counted(), len(self.chaos.blows)
        killed = ", ".join(f"{counts[who]} {who}" for who in sorted(counts) if who != "publishing")
        away = f"; away: {', '.join(sorted(self.chaos.away))}" if self.chaos.away else ""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        return (
            f"{minutes}:{seconds:02}  {self.ended} of {self.total} workflows ended, "
            f"{len(self.active)} active; killed: {killed or 'none'}, "
            f"{counts['publishing']} publishing; {left} blows to come{away}"
        )


class Progress:
    """A line that is rewritten on a terminal, and now and then a new one elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._every = 0.2 if self._live else 10.0
        self._at = 0.0

    def show(self, soaking: Soak) -> None:
        if time.monotonic() - self._at < self._every:
            return
        self._at = time.monotonic()
        before, after = ("\r\x1b[K", "") if self._live else ("", "\n")
        sys.stderr.write(f"{before}{soaking.line()}{after}")
        sys.stderr.flush()

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\n")


# --- the place ------------------------------------------------------------------------------------


@contextmanager
def arranged(directory: Path, plan: argparse.Namespace) -> Iterator[Soak]:
    """Servers, repositories with the fence, a registered workflow, and workers; all gone after."""
    with ExitStack() as stack:
        print("starting lakeFS and Conductor", file=sys.stderr, flush=True)
        lake = stack.enter_context(start_lakefs(directory / "lakefs"))
        # It is started again and again: that takes half the work if Java compiles less.
        java = ("-XX:TieredStopAtLevel=1",)
        queue = stack.enter_context(start_conductor(directory / "conductor", java_options=java))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        environment = {
            **kept,
            **lake.settings,
            **queue.settings,
            "PERAGO_STACK": str(directory / "no-stack"),
            # A killed worker or server is soon back.
            "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
        }
        settings = settings_for(environment, directory / "home")
        repositories = {
            name: stack.enter_context(prepared(settings, name))
            for name in (f"soak-{number}" for number in range(REPOSITORIES))
        }
        modules = directory / "modules"
        modules.mkdir()
        shutil.copy(Path(__file__).with_name("soak_tasks.py"), modules)
        register(modules, environment)
        workers = []
        for number in range(WORKERS):
            workers.append(Worker(directory / f"worker-{number}", modules, environment))
            stack.callback(workers[-1].kill_all)
        chaos = Chaos(
            planned(
                plan.seed,
                workflows=plan.workflows - HELD_BACK,
                workers=WORKERS,
                worker_kills=plan.kills,
                servers=dict.fromkeys(("conductor", "lakefs"), plan.server_kills),
            ),
            workers,
            {"conductor": queue, "lakefs": lake},
        )
        stack.callback(chaos.end)
        witness = Conductor(ConductorConfig(queue.address))
        yield Soak(witness, repositories, chaos, plan.workflows)


def settings_for(environment: Mapping[str, str], home: Path) -> Settings:
    return load_settings(
        home=home,
        store="lakefs",
        lakefs_endpoint=environment["LAKECTL_SERVER_ENDPOINT_URL"],
        lakefs_access_key_id=environment["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        lakefs_secret_access_key=environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
        lakefs_storage_namespace=environment["PERAGO_LAKEFS_STORAGE_NAMESPACE"],
    )


@contextmanager
def prepared(settings: Settings, repository: str) -> Iterator[Witness]:
    """A repository with the files that every workflow starts from, and the fence."""
    with (
        closing(open_lakefs(settings)) as store,
        closing(Witness(lakefs_config(settings), repository)) as witness,
    ):
        store.create_repository(repository)
        branch = witness.default_branch()
        witness.write(branch, {f"{PREFIX}/{name}": content for name, content in BEFORE.items()})
        install_fence(store, repository, branch)
        yield witness


# --- the soak -------------------------------------------------------------------------------------


def run(soaking: Soak, *, minutes: float) -> Verdict:
    """Until all workflows have ended and what the dead left is cleared, then judge."""
    progress = Progress()
    while not soaking.is_over and time.monotonic() - soaking.began < 60 * minutes:
        soaking.turn()
        progress.show(soaking)
        time.sleep(TICK_SECONDS)
    progress.end()
    soaking.chaos.end()
    workers = soaking.chaos.workers
    for worker in workers:
        if not worker.is_running:
            worker.start()
        wait_until_gone(worker.root, CLEARING_SECONDS)
    stopped = [worker.stop(STOPPING_SECONDS) for worker in workers]
    verdict = judge(soaking.started, soaking.conductor, soaking.repositories, workers)
    verdict.problems += soaking.chaos.failures
    if soaking.ended < soaking.total:
        verdict.problems.append(f"{soaking.ended} of {soaking.total} workflows after {minutes} min")
    if not soaking.chaos.is_over:
        verdict.problems.append("not everybody was killed who was to be")
    if not all(stopped):
        verdict.problems.append("a worker didn't stop in peace when it was asked to")
    return verdict


def show(verdict: Verdict, soaking: Soak) -> None:
    counts, killed = verdict.counts, soaking.chaos.counted()
    total, ends = soaking.total, verdict.ends
    workers = {role: killed[role] for role in ("executor", "poller", "supervisor")}
    unfinished = ", ".join(f"{ends[end]} {end}" for end in sorted(ends)) or "none"
    lines = {
        "workflows": f"{counts['completed']} of {total} COMPLETED",
        "tasks": f"{counts['tasks']:,} accepted in {counts['attempts']:,} attempts; others: "
        f"{unfinished}",
        "output refs": f"{counts['refs on their branch']:,} of {counts['refs']:,} on their branch",
        "history": f"{counts['linear']} of {total} branches linear, {counts['commits']:,} commits",
        "content": f"{counts['content']} of {total} branches hold each task's work, once",
        "kill -9": f"{sum(workers.values())} of workers ("
        + ", ".join(f"{count} {role}" for role, count in workers.items())
        + f"), {killed['publishing']} inside publishing; {killed['conductor']} of Conductor, "
        f"{killed['lakefs']} of lakeFS",
        "left": ", ".join(
            f"{counts[kind]} {kind}"
            for kind in ("staging branches", "attempt directories", "findings of perago gc")
        ),
        "took": f"{time.monotonic() - soaking.began:.0f} s",
    }
    for name, words in lines.items():
        print(f"{name:<12} {words}")
    for problem in verdict.problems[:PROBLEMS_SHOWN]:
        print(f"PROBLEM      {problem}")
    if len(verdict.problems) > PROBLEMS_SHOWN:
        print(f"and {len(verdict.problems) - PROBLEMS_SHOWN} more")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--workflows", type=int, default=200)
    parser.add_argument("--kills", type=int, default=32, help="of workers' processes")
    parser.add_argument("--server-kills", type=int, default=5, help="of either server")
    parser.add_argument("--minutes", type=float, default=14.0, help="give up after this time")
    parser.add_argument("--keep", action="store_true", help="keep all files, also of a success")
    return parser.parse_args()


def main() -> int:
    """Exit code 0 if everything came out, 1 if not: then the directory with the evidence stays."""
    plan = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be cleaned up after as well
    print(
        f"seed {plan.seed}: {plan.workflows} workflows of {len(soak.steps)} tasks, "
        f"{WORKERS} workers with -j 2, leases of {LEASE_SECONDS} s",
        flush=True,
    )
    directory = Path(tempfile.mkdtemp(prefix="perago-soak-"))
    kept = True
    try:
        with arranged(directory, plan) as soaking:
            verdict = run(soaking, minutes=plan.minutes)
            show(verdict, soaking)
        kept = plan.keep or bool(verdict.problems)
    finally:
        if kept:
            print(f"everything is in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
