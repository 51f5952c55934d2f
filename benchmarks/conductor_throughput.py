"""Tasks a second on a real Conductor: this worker, perago 0.6.1's, and raw HTTP pollers."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor_rig import rig
from lakefs_peer import ensure_peer
from lakefs_rig import lake
from measuring import (
    Figure,
    Report,
    at_least,
    failures,
    interleaved,
    median,
    say,
    settle,
    spread_of,
)
from shipped import BRANCH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conductor_rig import Conductor, Rig, Side, Worker
    from lakefs_rig import Lake
    from measuring import Samples, Scale

EXECUTORS = 4
PART_OF_RAW_POLLERS = 0.9
TIMES_PEER = 1.0
WORKSPACE_TIMES_PEER = 2.0
OBJECTS = 5
OBJECT_BYTES = 1_000
REPOSITORY = "throughput"
SECONDS_TO_WAKE = 2.0
"""For a worker that was frozen for a minute to connect again."""

NO_PARAMS: dict[str, object] = {"params": {}}


@dataclass
class Racer:
    """One side: its worker, frozen while it isn't its turn, and the tasks it is given at each."""

    conductor: Conductor
    side: Side
    worker: Worker
    inputs: Sequence[dict[str, object]]

    def get_ready(self) -> None:
        """Return when it serves, at rest."""
        first = self.conductor.queue(self.side, self.inputs[:1])
        self.conductor.ended(self.side, first, self.worker)
        self.worker.await_rest()
        self.worker.freeze()

    def drain(self) -> dict[str, float]:
        """Seconds from facing a full queue to the end of its last task."""
        self.worker.thaw()
        time.sleep(SECONDS_TO_WAKE)
        self.worker.freeze()
        workflows = self.conductor.queue(self.side, self.inputs)
        settle()
        spent = self.worker.seconds_of_processor()
        began = time.time()
        self.worker.thaw()
        try:
            seconds = self.conductor.ended(self.side, workflows, self.worker)[-1] - began
        except BaseException:
            self.conductor.cancel(workflows)
            raise
        finally:
            self.worker.freeze()
        spent = self.worker.seconds_of_processor() - spent
        return {self.side.name: seconds, processor_of(self.side.name): spent / len(self.inputs)}


def measure(scratch: Path, scale: Scale) -> Report:
    free = scale.pick(quick=20, full=400)
    writable = scale.pick(quick=10, full=100)
    rounds = scale.rounds_or(5)
    python = ensure_peer(say) if scale.peer else None
    with lake(scratch) as here, rig(scratch, here.server.settings) as bench:
        free_tasks = race_free(bench, python, free, rounds)
        writable_tasks: Samples = defaultdict(list)
        with failures.kept("writable tasks"):
            writable_tasks = race_writable(bench, here, python, writable, rounds)
    return Report(
        name="conductor_throughput",
        question=f"no-op tasks on Conductor with -j {EXECUTORS}",
        basis=f"medians of {rounds} interleaved rounds, with the least and the most",
        figures=(
            *free_figures(free_tasks, free),
            *writable_figures(writable_tasks, writable),
        ),
        samples={
            **{f"{free} workspace-free tasks, {who}": t for who, t in free_tasks.items()},
            **{f"{writable} writable tasks, {who}": t for who, t in writable_tasks.items()},
        },
    )


def race_free(bench: Rig, python: Path | None, tasks: int, rounds: int) -> Samples:
    ours, raw, peer = (bench.side(n, f"free_{n}") for n in ("perago", "raw", "peer"))
    say(f"  {tasks} workspace-free tasks")
    workers = {
        ours: lambda: bench.ours(ours, executors=EXECUTORS),
        raw: lambda: bench.raw_pollers(raw, EXECUTORS),
    }
    if python is not None:
        workers[peer] = lambda: bench.peer(python, peer, EXECUTORS)
    with ExitStack() as stack:
        racers = {
            side.name: Racer(
                bench.conductor, side, stack.enter_context(begin()), [NO_PARAMS] * tasks
            )
            for side, begin in workers.items()
        }
        return race(racers, rounds)


def race_writable(bench: Rig, here: Lake, python: Path | None, tasks: int, rounds: int) -> Samples:
    say(f"  {tasks} writable tasks, {OBJECTS} objects each")
    workspaces = prepare_workspaces(here, tasks)
    ours = bench.side("perago", "writable_perago", uses_workspace=True)
    peer = bench.side("peer", "writable_peer", uses_workspace=True)
    with ExitStack() as stack:
        own = stack.enter_context(bench.ours(ours, executors=EXECUTORS))
        inputs = [{**NO_PARAMS, "workspace": w | {"ref_type": "commit"}} for w in workspaces]
        racers = {ours.name: Racer(bench.conductor, ours, own, inputs)}
        if python is not None:
            its = stack.enter_context(bench.peer(python, peer, EXECUTORS))
            spelled = [{**NO_PARAMS, "workspace": w | {"refType": "commit"}} for w in workspaces]
            racers[peer.name] = Racer(bench.conductor, peer, its, spelled)
        return race(racers, rounds)


def race(racers: dict[str, Racer], rounds: int) -> Samples:
    for name, racer in racers.items():
        with failures.kept(f"{name}, start"):
            racer.get_ready()
    return interleaved({name: r.drain for name, r in racers.items()}, rounds=rounds)


def processor_of(name: str) -> str:
    return f"{name}, processor seconds a task"


def prepare_workspaces(here: Lake, count: int) -> list[dict[str, object]]:
    """A branch for each task, as one active workflow writes a branch at a time; all fenced."""
    tree = here.new_output()
    tree.mkdir()
    for number in range(OBJECTS):
        (tree / f"{number}.bin").write_bytes(bytes(OBJECT_BYTES))
    shipped = here.shipped(REPOSITORY, tree)
    names = [f"task-{number}" for number in range(count)]
    for name in names:
        shipped.store.create_branch(REPOSITORY, name, BRANCH)
    ref = shipped.head.id
    shipped.close()
    return [{"repository": REPOSITORY, "branch": name, "ref": ref} for name in names]


def free_figures(samples: Samples, tasks: int) -> tuple[Figure, ...]:
    return (
        at_least(
            "workspace-free tasks a second, times four raw HTTP pollers",
            f"{rates(samples['perago'], tasks)}, raw {rates(samples['raw'], tasks)}",
            median(samples["raw"]) / median(samples["perago"]),
            PART_OF_RAW_POLLERS,
            "x",
        ),
        at_least(
            "workspace-free tasks a second, times the peer",
            f"{rates(samples['perago'], tasks)}, peer {rates(samples['peer'], tasks)}",
            median(samples["peer"]) / median(samples["perago"]),
            TIMES_PEER,
            "x",
        ),
        processor_figure("workspace-free", samples, ("perago", "raw", "peer")),
    )


def writable_figures(samples: Samples, tasks: int) -> tuple[Figure, ...]:
    return (
        at_least(
            "writable no-op tasks a second, times the peer",
            f"{rates(samples['perago'], tasks)}, peer {rates(samples['peer'], tasks)}",
            median(samples["peer"]) / median(samples["perago"]),
            WORKSPACE_TIMES_PEER,
            "x",
        ),
        processor_figure("writable", samples, ("perago", "peer")),
    )


def rates(seconds: list[float], tasks: int) -> str:
    return spread_of([tasks / taken for taken in seconds], "/s", 1)


def processor_figure(kind: str, samples: Samples, names: Sequence[str]) -> Figure:
    milliseconds = {n: 1000 * median(samples[processor_of(n)]) for n in names}
    return Figure(
        f"{kind}: the worker's processor milliseconds a task",
        ", ".join(f"{name} {value:.1f}" for name, value in milliseconds.items()),
        milliseconds["perago"],
    )
