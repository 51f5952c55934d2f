"""What the smoke on both servers does with the ``perago`` command, and what it looks at then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from conductor_witness import ConductorWitness
from lakefs_scene import Place
from lakefs_witness import Witness

from perago.model.attempt import STAGING_PREFIX
from perago.settings import Settings

PERAGO = Path(sys.executable).with_name("perago")
TASKS = Path(__file__).with_name("smoke_tasks.py")
PATIENCE_SECONDS = 240.0
STOPPING_SECONDS = 90.0


class CommandFailed(Exception):
    """A command of Perago's printed no document."""


@dataclass
class Statements:
    """What was looked at, numbered, printed as it comes."""

    _held: list[bool] = field(default_factory=list)

    def begin(self, section: str) -> None:
        print(f"\n{section}", flush=True)

    def verify(self, statement: str, *, holds: bool) -> None:
        self._held.append(holds)
        print(f"{len(self._held):4}. {'✓' if holds else '✗'} {statement}", flush=True)

    @property
    def totals(self) -> tuple[int, int]:
        """How many held, and how many didn't."""
        return self._held.count(True), self._held.count(False)


@dataclass(frozen=True)
class Said:
    """What a command of Perago's ended with and printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.out))
        except ValueError:
            said = " ".join((self.err or self.out).strip().splitlines()[-2:])
            raise CommandFailed(f"a command ended with {self.code} and said: {said}") from None


@dataclass(frozen=True)
class Ended:
    """A run as ``perago run --json`` prints it."""

    code: int
    document: dict[str, Any]

    @property
    def run(self) -> str:
        return str(self.document["run"])

    @property
    def status(self) -> str:
        return str(self.document["status"])

    @property
    def output_ref(self) -> str:
        return str(self.document["output_ref"])

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return list(self.document["attempts"])


@dataclass(frozen=True)
class SeenAttempt:
    """An attempt as Conductor shows it."""

    fields: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.fields["taskId"])

    @property
    def reference(self) -> str:
        return str(self.fields["referenceTaskName"])

    @property
    def step(self) -> str:
        """The task's name without the smoke's."""
        return str(self.fields["taskDefName"]).rpartition(".")[2]

    @property
    def status(self) -> str:
        return str(self.fields["status"])

    @property
    def retry(self) -> int:
        return int(self.fields["retryCount"])

    @property
    def reason(self) -> str:
        return str(self.fields.get("reasonForIncompletion"))

    @property
    def output(self) -> dict[str, Any]:
        return dict(self.fields["outputData"])

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.output["result"])

    @property
    def taken(self) -> str:
        """The commit it was given; empty for a task without a workspace."""
        return str(self.fields["inputData"].get("workspace", {}).get("ref", ""))

    @property
    def ref(self) -> str:
        """The commit it put out; empty if it put out none."""
        return str(self.output.get("workspace", {}).get("ref", ""))


@dataclass
class Stage:
    """The servers as Perago and as others see them, and how commands are given."""

    place: Place
    conductor: ConductorWitness
    settings: Settings
    on: str
    home: Path
    statements: Statements = field(default_factory=Statements)

    module = TASKS

    @property
    def witness(self) -> Witness:
        return self.place.witness

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def there(self) -> tuple[str, str]:
        """The option by which commands find the servers."""
        return ("--on", self.on)

    @cached_property
    def environment(self) -> dict[str, str]:
        own = {"PERAGO_SMOKE_NAME": self.name, "PERAGO_HOME": str(self.settings.home)}
        return {**os.environ, **own}

    # --- doing ------------------------------------------------------------------------------------

    def perago(self, *words: object) -> Said:
        answer = subprocess.run(
            [PERAGO, *map(str, words)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(answer.returncode, answer.stdout, answer.stderr)

    def extracted(self) -> dict[str, Any]:
        return self.perago("extract", self.module, "--json").document

    def branch(self, case: str) -> str:
        """A target branch of its own for a case, with the fence and the files to start from."""
        branch = f"{self.name}-{case}"
        self.witness.create_branch(branch, self.place.base("cas"))
        return branch

    def run(self, pipeline: str, branch: str, *params: str) -> Ended:
        """Run a pipeline to its end."""
        given = [word for param in params for word in ("--param", param)]
        where = ("--repository", self.place.repository, "--branch", branch)
        said = self.perago("run", f"{TASKS}:{pipeline}", *where, *given, "--json", *self.there)
        ended = Ended(said.code, said.document)
        self.place.runs.append(ended.run)
        return ended

    def start_as_somebody_else(self, pipeline: str, given: object) -> str:
        """Start a workflow without Perago, with whatever input."""
        run = self.conductor.start(f"{self.name}_{pipeline}", given)
        self.place.runs.append(run)
        return run

    # --- looking ----------------------------------------------------------------------------------

    def verify(self, statement: str, holds: object) -> None:
        self.statements.verify(statement, holds=bool(holds))

    def verify_nothing_staged(self) -> None:
        staged = [name for name in self.place.ours() if name.startswith(STAGING_PREFIX)]
        self.verify("no staging branch is left", not staged)

    def status(self, run: str) -> str:
        return str(self.conductor.workflow(run)["status"])

    def ended(self, run: str) -> str:
        """The status of a workflow once it is over, or has taken too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := self.status(run)) == "RUNNING" and time.monotonic() < deadline:
            time.sleep(0.5)
        return status

    def attempts(self, run: str) -> list[SeenAttempt]:
        """A workflow's attempts in the order they were made."""
        made = sorted(self.conductor.workflow(run)["tasks"], key=lambda one: int(one["seq"]))
        return [SeenAttempt(one) for one in made]

    def files(self, ref: str) -> dict[str, bytes]:
        return self.witness.files(ref, self.name)

    def parents(self, ref: str) -> list[str]:
        return list(self.witness.commit(ref).parents)


class Worker:
    """``perago start`` with the smoke's tasks; ended when this is left, however it is."""

    def __init__(self, stage: Stage) -> None:
        with (stage.home / "worker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [PERAGO, "start", TASKS, "-j", "2", *stage.there],
                env=stage.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> tuple[int, float]:
        """SIGTERM; its exit code, and the seconds it took."""
        began = time.monotonic()
        self._process.terminate()
        try:
            code = self._process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, time.monotonic() - began
