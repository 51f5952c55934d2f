"""One attempt against what people do without Perago: a git clone, or a plain copy."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

from measuring import (
    BenchmarkError,
    Report,
    apart,
    at_least,
    at_most,
    interleaved,
    median,
    say,
    spread_of,
    stopwatch,
)
from shipped import BRANCH, REPOSITORY, Shipped

if TYPE_CHECKING:
    from pathlib import Path

    from measuring import Scale

FILE_BYTES = 16_000
FILES_PER_DIRECTORY = 100
TIMES_FASTER_THAN_GIT = 2.0
TIMES_A_COPY = 4.0

Contents = dict[str, bytes]


def measure(scratch: Path, scale: Scale) -> Report:
    files = scale.pick(quick=1_000, full=10_000)
    changed = files // 100
    rounds = scale.rounds_or(7)
    say(f"  preparing {files:,} files of {FILE_BYTES:,} bytes, in a store and in a git repository")
    race = Race(scratch, files=files, changed=changed)
    samples = interleaved({"perago": race.perago, "git": race.git, "cp": race.copy}, rounds=rounds)
    perago, git, cp = (median(samples[name]) for name in ("perago", "git", "cp"))
    return Report(
        name="attempt_vs_git",
        question=f"one attempt on {files:,} files of {FILE_BYTES // 1000} kB, {changed} changed",
        basis=f"medians of {rounds} interleaved rounds",
        figures=(
            at_least(
                "times faster than git clone, add, commit, push",
                f"perago {spread_of(samples['perago'])}, git {spread_of(samples['git'])}",
                git / perago,
                TIMES_FASTER_THAN_GIT,
                "x",
            ),
            at_most(
                "times as long as one cp -r",
                f"perago {spread_of(samples['perago'])}, cp -r {spread_of(samples['cp'])}",
                perago / cp,
                TIMES_A_COPY,
                "x",
            ),
        ),
        samples=samples,
    )


class Race:
    """The same tree in a store, in a packed bare git repository, and as plain files.

    Every round gives the same files new bytes, so a right result is the same tree on each side
    whatever was published in the rounds before.
    """

    def __init__(self, scratch: Path, *, files: int, changed: int) -> None:
        self.scratch = scratch
        self.random = random.Random(16)
        self.tree = scratch / "tree"
        self.contents = {
            f"d{n // FILES_PER_DIRECTORY:03}/f{n:05}.bin": self.random.randbytes(FILE_BYTES)
            for n in range(files)
        }
        self.changed = self.random.sample(sorted(self.contents), changed)
        for directory in {path.partition("/")[0] for path in self.contents}:
            (self.tree / directory).mkdir(parents=True)
        write(self.tree, self.contents)
        self.shipped = Shipped(scratch / "home")
        self.shipped.fill(self.tree)
        self.bare = scratch / "bare.git"
        self._make_bare_repository()

    def new_bytes(self) -> Contents:
        """What a side writes in this round."""
        return {path: self.random.randbytes(FILE_BYTES) for path in self.changed}

    # --- the sides ----------------------------------------------------------------------------

    def perago(self) -> float:
        new = self.new_bytes()
        seconds = self.shipped.attempt(lambda files: write(files, new))
        expected = {
            path: hashlib.sha256(data).hexdigest() for path, data in (self.contents | new).items()
        }
        listed = self.shipped.store.list_objects(REPOSITORY, BRANCH)
        if {entry.key: entry.checksum for entry in listed} != expected:
            raise BenchmarkError("perago published another tree than was written")
        return seconds

    def git(self) -> float:
        new = self.new_bytes()
        clone = apart(self.scratch)
        before = git(self.bare, "rev-parse", BRANCH).strip()
        with stopwatch() as taken:
            git(self.scratch, "clone", "--local", "--quiet", str(self.bare), str(clone))
            write(clone, new)
            git(clone, "add", "-A")
            git(clone, "commit", "--quiet", "-m", "change")
            git(clone, "push", "--quiet", "origin", BRANCH)
            shutil.rmtree(clone)  # an attempt removes its directory too
        self._check_git_tree(self.contents | new)
        self._start_git_over(before)
        return taken[0]

    def copy(self) -> float:
        copy = apart(self.scratch)
        with stopwatch() as taken:
            run("cp", "-r", str(self.tree), str(copy))
        copied = sum(len(names) for _, _, names in os.walk(copy))
        if copied != len(self.contents):
            raise BenchmarkError(f"cp copied {copied} files of {len(self.contents)}")
        shutil.rmtree(copy)
        return taken[0]

    # --- git's part -----------------------------------------------------------------------------

    def _make_bare_repository(self) -> None:
        origin = self.scratch / "origin"
        shutil.copytree(self.tree, origin)
        git(origin, "init", "--quiet", "--initial-branch", BRANCH)
        git(origin, "add", "-A")
        git(origin, "commit", "--quiet", "-m", "start")
        git(self.scratch, "clone", "--quiet", "--bare", str(origin), str(self.bare))
        git(self.bare, "gc", "--quiet")
        shutil.rmtree(origin)

    def _check_git_tree(self, expected: Contents) -> None:
        listed = git(self.bare, "ls-tree", "-r", "-z", "--format=%(path) %(objectname)", BRANCH)
        found = dict(line.split(" ") for line in listed.rstrip("\0").split("\0"))
        if found != {path: blob_id(data) for path, data in expected.items()}:
            raise BenchmarkError("git pushed another tree than was written")

    def _start_git_over(self, commit: str) -> None:
        """Packed again: loose objects of earlier rounds would slow its clones down."""
        git(self.bare, "update-ref", f"refs/heads/{BRANCH}", commit)
        git(self.bare, "prune", "--expire=now")


def write(root: Path, contents: Contents) -> None:
    for path, data in contents.items():
        (root / path).write_bytes(data)


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def git(directory: Path, *arguments: str) -> str:
    return run("git", "-C", str(directory), *arguments)


def run(*command: str) -> str:
    # Git as it comes: no configuration of this machine or user may speed it up or slow it down.
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "bench" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "bench@example.com" for who in ("AUTHOR", "COMMITTER")},
    }
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout
