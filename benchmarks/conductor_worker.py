"""One worker on a real Conductor: its start, its end, what it takes while idle, how it grows."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from conductor_rig import Memory, rig
from conductor_throughput import NO_PARAMS, prepare_workspaces
from lakefs_peer import ensure_peer
from lakefs_rig import lake
from measuring import MIB, Figure, Report, at_most, figures_of, interleaved, median, say, spread_of

if TYPE_CHECKING:
    from pathlib import Path

    from conductor_rig import Rig, Worker
    from conductor_rig import Side as Served
    from lakefs_rig import Lake
    from measuring import Samples, Scale, Side

EXECUTORS = 4
PART_OF_PEERS_START = 0.4
STOP_SECONDS = 2.0
PATIENCE_SECONDS = 30.0
IDLE_PERCENT = 2.0
IDLE_MIB = 120.0
GROWTH_PERCENT = 5.0
GROWING_EXECUTORS = 2
WORKSPACES = 10


def measure(scratch: Path, scale: Scale) -> Report:
    python = ensure_peer(say) if scale.peer else None
    with lake(scratch) as here, rig(scratch, here.server.settings) as bench:
        pair = Pair(bench, python)
        samples = pair.start_in_turns(rounds=scale.rounds_or(3))
        idle_seconds = scale.pick(quick=3, full=30)
        figures = (
            *start_figures(samples),
            *figures_of("idleness", lambda: idle_figures(pair, seconds=idle_seconds)),
            *figures_of("growth", lambda: growth_figures(bench, here, scale)),
        )
    return Report(
        name="conductor_worker",
        question="a worker on Conductor: start, stop, idleness and growth",
        basis="medians of interleaved rounds, with the least and the most",
        figures=figures,
        samples=samples,
    )


class Pair:
    """Our worker and the peer's, each with a workspace-free task of its own, with -j EXECUTORS."""

    def __init__(self, bench: Rig, python: Path | None) -> None:
        self.bench = bench
        self._python = python
        self._our_side = bench.side("perago", "start_perago")
        self._peers_side = bench.side("peer", "start_peer")
        self._peer_starts = 0

    @property
    def has_peer(self) -> bool:
        return self._python is not None

    def ours(self) -> Worker:
        return self.bench.ours(self._our_side, executors=EXECUTORS)

    def peers(self) -> Worker:
        assert self._python is not None
        return self.bench.peer(self._python, self._peers_side, EXECUTORS)

    def start_in_turns(self, *, rounds: int) -> Samples:
        say("  from the command to the first completed task, from SIGTERM to the end")
        sides: dict[str, Side] = {"start, perago": self._start_ours}
        if self.has_peer:
            sides["start, peer"] = self._start_peer
        return interleaved(sides, rounds=rounds)

    def _start_ours(self) -> dict[str, float]:
        with self.ours() as worker:
            seconds = self.first_of_ours(worker)
            return {"start, perago": seconds, "stop, perago": self._stop(worker)}

    def _start_peer(self) -> dict[str, float]:
        with self.peers() as worker:
            seconds = self.first_of_peers(worker)
            # Measured once a run, in the second start: it takes all of the time it is given.
            self._peer_starts += 1
            if self._peer_starts != 2:
                return {"start, peer": seconds}
            return {"start, peer": seconds, "stop, peer": self._stop(worker)}

    def first_of_ours(self, worker: Worker) -> float:
        return self._first_task(self._our_side, worker)

    def first_of_peers(self, worker: Worker) -> float:
        return self._first_task(self._peers_side, worker)

    def _first_task(self, side: Served, worker: Worker) -> float:
        """Seconds from the command to the end of a task that was waiting; at rest afterwards."""
        conductor = self.bench.conductor
        (ended,) = conductor.ended(side, conductor.queue(side, [NO_PARAMS]), worker)
        worker.await_rest()
        return ended - worker.began

    def _stop(self, worker: Worker) -> float:
        return worker.terminate(PATIENCE_SECONDS) or PATIENCE_SECONDS


# --- start and stop -------------------------------------------------------------------------------


def start_figures(samples: Samples) -> tuple[Figure, ...]:
    ours, peer = samples["start, perago"], samples["start, peer"]
    stops, peers_end = samples["stop, perago"], median(samples["stop, peer"])
    shown = f"{peers_end:.1f} s" if peers_end < PATIENCE_SECONDS else f"not after {peers_end:.0f} s"
    return (
        at_most(
            f"perago start -j {EXECUTORS} to the first completed task, times the peer",
            f"{spread_of(ours)}, peer {spread_of(peer)}",
            median(ours) / median(peer),
            PART_OF_PEERS_START,
            "x",
        ),
        at_most(
            "SIGTERM on an idle worker to its exit, the longest",
            f"{spread_of(stops)}, peer: {shown}",
            max(stops, default=math.nan),
            STOP_SECONDS,
            " s",
        ),
    )


# --- idleness -------------------------------------------------------------------------------------


def idle_figures(pair: Pair, *, seconds: int) -> tuple[Figure, ...]:
    say(f"  idle for {seconds} s")
    with ExitStack() as stack:
        own = stack.enter_context(pair.ours())
        pair.first_of_ours(own)
        workers = [own]
        if pair.has_peer:
            workers.append(stack.enter_context(pair.peers()))
            pair.first_of_peers(workers[1])
        before = [worker.seconds_of_processor() for worker in workers]
        time.sleep(seconds)
        ours, *peers = (
            100 * (worker.seconds_of_processor() - was) / seconds
            for worker, was in zip(workers, before, strict=True)
        )
        executors = own.executors
        assert len(executors) == EXECUTORS
        minding = Memory.of([pid for pid in own.pids if pid not in executors])
        running = Memory.of(executors)
        all_of_peers = [Memory.of(worker.pids) for worker in workers[1:]]
    peers_percent = "".join(f", peer {percent:.2f} %" for percent in peers)
    peers_memory = "".join(f"; all of the peer's {memory}" for memory in all_of_peers)
    return (
        at_most(
            "idle worker, percent of a core, all its processes",
            f"{ours:.2f} %{peers_percent}",
            ours,
            IDLE_PERCENT,
            " %",
        ),
        at_most(
            "idle worker, resident MiB of supervisor and poller",
            f"{minding}; its {EXECUTORS} executors {running}{peers_memory}",
            minding.resident / MIB,
            IDLE_MIB,
            " MiB",
        ),
    )


# --- growth ---------------------------------------------------------------------------------------


def growth_figures(bench: Rig, here: Lake, scale: Scale) -> tuple[Figure, ...]:
    """One worker, most tasks without a workspace and every fourth with one."""
    early, late = scale.pick(quick=20, full=500), scale.pick(quick=60, full=2_000)
    say(f"  memory after {early:,} and {late:,} tasks, -j {GROWING_EXECUTORS}")
    free = bench.side("perago", "growth_free")
    writable = bench.side("perago", "growth_writable", uses_workspace=True)
    workspaces = prepare_workspaces(here, WORKSPACES)
    with bench.ours(free, writable, executors=GROWING_EXECUTORS) as worker:

        def work(tasks: int) -> dict[str, Memory]:
            for _ in range(tasks // (4 * WORKSPACES)):
                # A branch has one writer at a time, so these few are waited for.
                some = bench.conductor.queue(free, [NO_PARAMS] * 3 * WORKSPACES)
                given = [{**NO_PARAMS, "workspace": w | {"ref_type": "commit"}} for w in workspaces]
                others = bench.conductor.queue(writable, given)
                bench.conductor.ended(free, some, worker)
                bench.conductor.ended(writable, others, worker)
            return memory_by_part(worker)

        before = work(early)
        after = work(late - early)
    return (
        at_most(
            f"resident memory, growth from task {early:,} to task {late:,}",
            f"{before['all']} and {after['all']}",
            growth(before["all"], after["all"]),
            GROWTH_PERCENT,
            " %",
        ),
        *(
            Figure(
                f"of that, {part}",
                f"{before[part]} and {after[part]}",
                growth(before[part], after[part]),
            )
            for part in ("supervisor", "poller", "executors")
            if before[part].resident  # else it is no process of its own
        ),
    )


def memory_by_part(worker: Worker) -> dict[str, Memory]:
    supervisor, *below = worker.pids
    executors = worker.executors
    parts = {
        "all": worker.pids,
        "supervisor": [supervisor],
        "poller": [pid for pid in below if pid not in executors],
        "executors": executors,
    }
    return {part: Memory.of(pids) for part, pids in parts.items()}


def growth(before: Memory, after: Memory) -> float:
    return 100 * (after.resident - before.resident) / before.resident
