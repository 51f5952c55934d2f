"""perago 0.6.1, the package that came before this one, in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from measuring import BenchmarkError

from perago.toolchain.cache import Tool, ensure, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.model.workspace import WorkspaceRef
    from perago.toolchain.cache import OnLine

VERSION = "0.6.1"
PINNED = Path(__file__).with_name("lakefs_peer.txt")
DRIVER = Path(__file__).with_name("lakefs_peer_driver.py")


def ensure_peer(on_line: OnLine) -> Path:
    """The Python that has the peer installed: in the tools cache, never in the project's own.

    Raises RuntimeConfigError if it can't be fetched from a package index.
    """
    return ensure(peer_tool(), lambda room: _install(room, on_line), on_line) / "bin" / "python"


def peer_tool() -> Tool:
    """Where it is, or will be."""
    pins = hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return Tool("peer", f"{VERSION}-{python}-{pins}", ("bin/python",))


def _install(room: Path, on_line: OnLine) -> None:
    on_line(f"  fetching perago {VERSION} from the Python package index, once for this machine")
    steps = (
        [sys.executable, "-m", "venv", room],
        [
            *(room / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
            *("--require-hashes", "--requirement", PINNED),
        ],
    )
    for command in steps:
        run(
            command,
            doing=f"installing perago {VERSION}",
            fix="let pip reach a package index (PIP_INDEX_URL, PIP_CERT, HTTPS_PROXY are obeyed)",
            environment=os.environ,
            directory=room,
        )


class Peer:
    """One process of the peer's; a context manager. Its imports are done when it is entered.

    After a question that it didn't answer, the next one goes to a new process.
    """

    def __init__(self, python: Path, server: Mapping[str, str]) -> None:
        self._python = python
        self._server = server
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [str(self._python), str(DRIVER)],
            env={**os.environ, **self._server},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        _answer(self._process)
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def fetch(self, workspace: WorkspaceRef, directory: Path) -> float:
        """Seconds of fetching a workspace into a new directory, which stays."""
        return self._ask(workspace, directory)["fetch"]

    def attempt(
        self,
        workspace: WorkspaceRef,
        directory: Path,
        *,
        changed: Sequence[str],
        file_bytes: int,
        seed: int,
    ) -> dict[str, float]:
        """Seconds of its steps: ``fetch``, ``stage``, ``publish``, ``cleanup``, ``attempt``.

        The body gives every path of ``changed`` new bytes, those that ``seed`` stands for.
        """
        change = {"paths": list(changed), "file_bytes": file_bytes, "seed": seed}
        return self._ask(workspace, directory, change=change)

    def _ask(
        self, workspace: WorkspaceRef, directory: Path, **more: Mapping[str, object]
    ) -> dict[str, float]:
        given = workspace.model_dump()
        given["refType"] = given.pop("ref_type")  # as it spells it
        asked = {"workspace": given, "directory": str(directory), **more}
        process = self._process or self._start()
        try:
            assert process.stdin is not None
            print(json.dumps(asked), file=process.stdin, flush=True)
            return _answer(process)
        except BaseException:
            self._kill()
            raise


def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkError("the peer ended; its own output is above")
    found: dict[str, float] = json.loads(line)
    return found
