"""Fetching, staging and whole attempts on a real lakeFS, against the peer and against lakectl."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lakefs_peer import Peer, ensure_peer
from lakefs_rig import PEER_BRANCH, lake
from measuring import (
    BenchmarkError,
    Figure,
    Report,
    at_least,
    at_most,
    figures_of,
    interleaved,
    median,
    say,
    spread_of,
    stopwatch,
)
from shipped import BRANCH, task_that

from perago.adapters.local.engine import LocalEngine
from perago.errors import TaskTerminalError
from perago.flow.lifecycle import run_attempt
from perago.model.workspace import WorkspaceRef
from perago.testing.bench import RecordingJournal

if TYPE_CHECKING:
    from lakefs_rig import Lake, Served
    from measuring import Samples, Scale, Side

FILE_BYTES = 16_000
FILES_PER_DIRECTORY = 100
FETCH_TIMES_FASTER_THAN_PEER = 4.5
FETCH_TIMES_LAKECTL = 1.1
STAGE_TIMES_FASTER_THAN_PEER = 100.0
ATTEMPT_TIMES_FASTER_THAN_PEER = 10.0
FETCHING = Path(__file__).with_name("lakefs_fetching.py")
STAGING_STEPS = ("post", "stage.branch", "stage.upload", "stage.commit")


def measure(scratch: Path, scale: Scale) -> Report:
    small = scale.pick(quick=200, full=2_000)
    large = scale.pick(quick=400, full=10_000)
    with lake(scratch) as here, ExitStack() as opened:
        peer = None
        if scale.peer:
            peer = opened.enter_context(Peer(ensure_peer(say), here.server.settings))
        few = Race(here, peer, files=small)
        few.fetch_in_turns(rounds=scale.rounds_or(5))
        few.attempt_in_turns(rounds=scale.rounds_or(3))
        many = Race(here, peer, files=large)
        many.fetch_in_turns(rounds=scale.rounds_or(3))
        figures = (
            *fetch_figures(few),
            *fetch_figures(many),
            *attempt_figures(few),
            *figures_of("second attempt at a commit", lambda: second_attempt_figures(many)),
        )
    return Report(
        name="lakefs_attempt",
        question=f"objects of {FILE_BYTES // 1000} kB on lakeFS, 1 % changed, cold cache",
        basis="medians of interleaved rounds, with the least and the most",
        figures=figures,
        samples={
            f"{race.files} objects, {name}": taken
            for race in (few, many)
            for name, taken in race.samples.items()
        },
    )


class FetchWatch(RecordingJournal):
    """Asks the server what it has done by the end of the fetch."""

    def __init__(self, here: Lake) -> None:
        super().__init__()
        self._here = here
        self.served = here.served()

    def event(self, step: str, **fields: object) -> None:
        super().event(step, **fields)
        if step == "fetch":
            self.served = self._here.served()


class Race:
    """The same objects on two branches of one repository, for the two who publish there."""

    def __init__(self, here: Lake, peer: Peer | None, *, files: int) -> None:
        say(f"  preparing {files:,} objects of {FILE_BYTES:,} bytes")
        self.here = here
        self.peer = peer
        self.files = files
        self.random = random.Random(16)
        self.repository = f"objects-{files}"
        tree = here.new_output()
        self.md5s: dict[str, str] = {}
        for number in range(files):
            key = f"d{number // FILES_PER_DIRECTORY:03}/f{number:05}.bin"
            data = self.random.randbytes(FILE_BYTES)
            (tree / key).parent.mkdir(parents=True, exist_ok=True)
            (tree / key).write_bytes(data)
            self.md5s[key] = md5(data)
        self.changed = self.random.sample(sorted(self.md5s), files // 100)
        self.shipped = here.shipped(self.repository, tree)
        shutil.rmtree(tree)
        self.samples: Samples = defaultdict(list)

    def fetch_in_turns(self, *, rounds: int) -> None:
        sides: dict[str, Side] = {"fetch, perago": self.fetch, "fetch, lakectl": self.lakectl}
        if self.peer is not None:
            sides["fetch, peer"] = self.peer_fetch
        self.samples |= interleaved(sides, rounds=rounds)
        self.samples |= interleaved(
            {"fetch, perago as a process": self.fetch_in_a_process}, rounds=2, warm_ups=0
        )

    def attempt_in_turns(self, *, rounds: int) -> None:
        sides: dict[str, Side] = {"attempt, perago": self.attempt}
        if self.peer is not None:
            sides["attempt, peer"] = self.peer_attempt
        self.samples |= interleaved(sides, rounds=rounds)

    # --- fetching only --------------------------------------------------------------------------

    def fetch(self) -> float:
        runtime = self.here.runtime(self.shipped, RecordingJournal(), self.here.new_cache())
        directory = self.here.new_output()
        directory.mkdir()
        with stopwatch() as taken:
            opened = LocalEngine().open(runtime.store, self.workspace, "/", directory)
        self._check_fetched(directory, opened.moved.bytes)
        runtime.store.close()
        return taken[0]

    def fetch_in_a_process(self) -> float:
        directory, cache = self.here.new_output(), self.here.new_cache()
        directory.mkdir()
        asked = json.dumps({"workspace": self.workspace.model_dump(), "into": str(directory)})
        environment = {
            **os.environ,
            **self.here.server.settings,
            "PERAGO_HOME": str(self.shipped.settings.home),
            "PERAGO_CACHE": str(cache),
        }
        with stopwatch() as taken:
            subprocess.run([sys.executable, str(FETCHING), asked], check=True, env=environment)
        self._check_fetched(directory, None)
        return taken[0]

    def lakectl(self) -> float:
        directory = self.here.new_output()
        uri = f"lakefs://{self.repository}/{self.peer_workspace.ref}/"
        seconds = self.here.lakectl("fs", "download", "-r", "-p", "16", uri, f"{directory}/")
        self._check_fetched(directory, None)
        return seconds

    def peer_fetch(self) -> float:
        directory = self.here.new_output()
        assert self.peer is not None
        seconds = self.peer.fetch(self.peer_workspace, directory)
        self._check_fetched(directory, None)
        return seconds

    def _check_fetched(self, directory: Path, moved: int | None) -> None:
        """Also removes what was fetched: the disk is the next one's."""
        found = [path for path in directory.rglob("*.bin") if path.stat().st_size == FILE_BYTES]
        if len(found) != len(self.md5s):
            raise BenchmarkError(f"{len(found)} objects were fetched, not {len(self.md5s)}")
        if moved is not None and moved != FILE_BYTES * len(self.md5s):
            raise BenchmarkError(f"{moved} bytes were moved: the cache wasn't cold")
        shutil.rmtree(directory)

    # --- whole attempts --------------------------------------------------------------------------

    def attempt(self) -> dict[str, float]:
        journal = RecordingJournal()
        seconds = self._attempt(journal, self.here.new_cache())
        steps = {str(event["step"]): event for event in journal.events}
        staging = sum(float(str(steps[name]["seconds"])) for name in STAGING_STEPS)
        return {"attempt, perago": seconds, "stage, perago": staging}

    def _attempt(self, journal: RecordingJournal, cache: Path) -> float:
        runtime = self.here.runtime(self.shipped, journal, cache)
        seed = self.random.getrandbits(32)
        seconds = self.shipped.attempt(lambda files: self._change(files, seed), runtime=runtime)
        runtime.store.close()
        if journal.of("publish")["level"] != "cas":
            raise BenchmarkError("the measured attempt wasn't fenced by the server")
        self._check_published(BRANCH, seed)
        return seconds

    def peer_attempt(self) -> dict[str, float]:
        assert self.peer is not None
        seed = self.random.getrandbits(32)
        found = self.peer.attempt(
            self.peer_workspace,
            self.here.new_output(),
            changed=self.changed,
            file_bytes=FILE_BYTES,
            seed=seed,
        )
        self._check_published(PEER_BRANCH, seed)
        return {"attempt, peer": found["attempt"], "stage, peer": found["stage"]}

    def failed_then_again(self) -> tuple[dict[str, object], Served]:
        """The second attempt at a commit whose first one ended badly, until it has its files.

        What our journal says of its fetch, and what the server does. The two attempts share nothing
        but the cache's directory.
        """

        def give_up(_files: Path) -> None:
            raise TaskTerminalError("after everything has been fetched")

        cache = self.here.new_cache()
        failing, first = task_that(give_up), RecordingJournal()
        runtime = self.here.runtime(self.shipped, first, cache)
        run_attempt(self.shipped.deliver(failing, self.shipped.head.id), failing, runtime)
        runtime.store.close()
        if first.of("fetch")["objects_moved"] != self.files:
            raise BenchmarkError("the first attempt didn't fetch everything: nothing is proven")
        before = self.here.served()
        second = FetchWatch(self.here)
        self._attempt(second, cache)
        return second.of("fetch"), second.served.since(before)

    def _change(self, files: Path, seed: int) -> None:
        numbers = random.Random(seed)
        for path in self.changed:
            (files / path).write_bytes(numbers.randbytes(FILE_BYTES))

    def _check_published(self, branch: str, seed: int) -> None:
        numbers = random.Random(seed)
        expected = self.md5s | {path: md5(numbers.randbytes(FILE_BYTES)) for path in self.changed}
        listed = self.shipped.store.list_objects(self.repository, branch)
        found = {e.key: e.checksum for e in listed if not e.key.startswith("_lakefs_actions/")}
        if found != expected:
            raise BenchmarkError(f"{branch} has another tree than was written")

    @property
    def workspace(self) -> WorkspaceRef:
        return WorkspaceRef(
            repository=self.repository, branch=BRANCH, ref_type="commit", ref=self.shipped.head.id
        )

    @property
    def peer_workspace(self) -> WorkspaceRef:
        ref = self.shipped.store.head(self.repository, PEER_BRANCH).id
        return WorkspaceRef(
            repository=self.repository, branch=PEER_BRANCH, ref_type="commit", ref=ref
        )


def fetch_figures(race: Race) -> list[Figure]:
    what = f"fetch {race.files:,}"
    ours, lakectl, process = (
        race.samples[f"fetch, {who}"] for who in ("perago", "lakectl", "perago as a process")
    )
    return [
        times_faster(what, race, "fetch", FETCH_TIMES_FASTER_THAN_PEER),
        at_most(
            f"{what}: times as long as lakectl -p 16",
            f"perago {spread_of(ours)}, lakectl {spread_of(lakectl)}",
            median(ours) / median(lakectl),
            FETCH_TIMES_LAKECTL,
            "x",
        ),
        Figure(
            f"{what}: the same, as a process of its own",
            f"perago {spread_of(process)}, its start and imports included",
            median(process) / median(lakectl),
        ),
    ]


def attempt_figures(race: Race) -> list[Figure]:
    changed = f"{race.files:,}, {len(race.changed)} changed"
    return [
        times_faster(f"stage {changed}", race, "stage", STAGE_TIMES_FASTER_THAN_PEER),
        times_faster(f"attempt {changed}", race, "attempt", ATTEMPT_TIMES_FASTER_THAN_PEER),
    ]


def times_faster(what: str, race: Race, part: str, bar: float) -> Figure:
    ours, peer = (race.samples[f"{part}, {who}"] for who in ("perago", "peer"))
    return at_least(
        f"{what}: times faster than the peer",
        f"perago {spread_of(ours)}, peer {spread_of(peer)}",
        median(peer) / median(ours),
        bar,
        "x",
    )


def second_attempt_figures(race: Race) -> list[Figure]:
    fetched, served = race.failed_then_again()
    return [
        at_most(
            "second attempt at a commit: bytes moved to fetch",
            f"{fetched['objects_moved']} of {fetched['objects']:,} objects in "
            f"{float(str(fetched['seconds'])):.2f} s, says our journal",
            float(str(fetched["bytes_moved"])),
            0,
            " B",
        ),
        at_most(
            "second attempt at a commit: objects the server was asked for",
            f"by its own count, on either plane; it wrote {served.written / 1e6:.1f} MB in all, "
            f"for the listing ({served.requests['ListObjects']} pages)",
            served.object_reads,
            0,
            "",
        ),
    ]


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
