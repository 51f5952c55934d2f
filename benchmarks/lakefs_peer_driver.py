"""Runs attempts with the peer's own runtime, in the peer's own environment, and times them.

One request a line on standard input, one answer a line on standard output, both JSON. Imports and
the start of this process are over when the first request comes: they are not measured.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lakefs
from perago.lakefs_runtime import LakeFSWorkspaceRuntime
from perago.models import WorkspaceInput, WorkspaceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    runtime = LakeFSWorkspaceRuntime(
        client=lakefs.Client(
            host=os.environ["LAKECTL_SERVER_ENDPOINT_URL"],
            username=os.environ["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
            password=os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
        )
    )
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        given = WorkspaceInput.model_validate(asked["workspace"])
        act = attempt if "change" in asked else fetch
        answer = act(runtime, given, Path(asked["directory"]), **asked.get("change", {}))
        print(json.dumps(answer), flush=True)


def fetch(runtime: Any, given: Any, files: Path) -> dict[str, float]:
    """Seconds of fetching. The directory is the asker's."""
    taken: dict[str, float] = {}
    files.mkdir()
    with timed(taken, "fetch"):
        runtime.download_workspace(given, WorkspaceSpec(), files)
    return taken


def attempt(
    runtime: Any, given: Any, files: Path, *, paths: list[str], file_bytes: int, seed: int
) -> dict[str, float]:
    """Seconds of each step, and of all of them with the task's body and the directory's removal."""
    spec = WorkspaceSpec()
    delivery = SimpleNamespace(
        workflow_instance_id="bench",
        reference_task_name="change",
        seq=1,
        iteration=0,
        task_id=secrets.token_hex(8),
        retry_count=0,
        execution_id=secrets.token_hex(16),
    )
    taken: dict[str, float] = {}
    with timed(taken, "attempt"):
        taken |= fetch(runtime, given, files)
        numbers = random.Random(seed)
        for path in paths:
            (files / path).write_bytes(numbers.randbytes(file_bytes))
        with timed(taken, "stage"):
            staged = runtime.stage_workspace(files, given, spec, delivery)
        with timed(taken, "publish"):
            runtime.publish_workspace(staged, given, spec, delivery)
        with timed(taken, "cleanup"):
            runtime.cleanup_staging(staged)
            shutil.rmtree(files)
    return taken


@contextmanager
def timed(taken: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    taken[name] = time.perf_counter() - began


if __name__ == "__main__":
    main()
