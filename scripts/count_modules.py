"""How big the product is, and how many of its files one attempt's way leads through.

    python scripts/count_modules.py                  modules, lines, median, modules below 60 lines
    python scripts/count_modules.py --way embedded   and the files that `perago run` goes through
    python scripts/count_modules.py --way stack      with a worker on Conductor, lakeFS and Spark;
                                                     needs `perago stack up` in this directory

A file is on the way if one of its functions is called between the command and the report, in any
process. What runs only because a module is imported doesn't count. Files that call on into
another file of the product have to be opened when following the way; the others are its ends:
values, formats, checks.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = 60
PRODUCT = Path(__file__).parents[1] / "src" / "perago"

# Loaded by every Python process that is started, since it stands on PYTHONPATH.
RECORDER = """
import os, sys, threading

product, seen = os.environ["PERAGO_COUNTED"], set()
log = open(os.environ["PERAGO_COUNTED_LOG"], "a", buffering=1)
FUNCTION = 0x1  # CO_OPTIMIZED: a class body has it not

def is_importing(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(product):
            return frame.f_globals.get("__name__") != "__main__"
        frame = frame.f_back
    return False

def note(frame, event, argument):
    code = frame.f_code
    file = code.co_filename
    if event != "call" or not file.startswith(product):
        return
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(product):
        caller = caller.f_back
    step = (caller.f_code.co_filename if caller is not None else "", file)
    if step in seen:
        return
    if code.co_flags & FUNCTION and not is_importing(frame):
        seen.add(step)
        log.write("\\t".join(step) + "\\n")

sys.setprofile(note)
threading.setprofile(note)
"""

TASKS = """
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, pipeline, require_file, task
{spark_import}

class Params(BaseModel):
    times: int = 2


class Result(BaseModel):
    lines: int


@task(name="count.copy", owner_email="data@example.com",
      workspace=WorkspaceSpec(post=[require_file("copy.txt")]))
def copy(ws: Path, params: Params) -> Result:
    (ws / "copy.txt").write_text((ws / "raw.txt").read_text() * params.times)
    return Result(lines=params.times)

{spark_task}
way = pipeline("way", [{steps}])
"""

SPARK_TASK = """
@task(name="count.table", owner_email="data@example.com",
      workspace=WorkspaceSpec(post=[require_table("table")]))
def table(ws: SparkWorkspace, params: Params) -> Result:
    ws.spark.read.text(ws.input("raw.txt")).write.parquet(ws.output("table"))
    return Result(lines=params.times)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", action="append", choices=["embedded", "stack"], default=[])
    parser.add_argument("--list", action="store_true", help="name the files of a way")
    options = parser.parse_args()

    sizes = [len(file.read_text().splitlines()) for file in PRODUCT.rglob("*.py")]
    print(f"modules                       {len(sizes):6,}")
    print(f"lines                         {sum(sizes):6,}")
    print(f"median lines                  {statistics.median(sizes):6,.0f}")
    print(f"modules below {SMALL} lines        {sum(size < SMALL for size in sizes):6,}")
    for way in options.way:
        files = files_of_way(way)
        print(f"files of an attempt, {way:<8} {len(files):6,}")
        print(f"  that lead on to another     {sum(files.values()):6,}")
        if options.list:
            print(
                "".join(f"    {'→' if on else ' '} {name}\n" for name, on in files.items()), end=""
            )


def files_of_way(way: str) -> dict[str, bool]:
    """Run a pipeline there: the product's files that it passed, and whether each leads on."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        spark = way == "stack"
        (directory / "way_tasks.py").write_text(
            TASKS.format(
                spark_import="from perago import SparkWorkspace, require_table" if spark else "",
                spark_task=SPARK_TASK if spark else "",
                steps="copy, table" if spark else "copy",
            )
        )
        (directory / "data").mkdir()
        (directory / "data" / "raw.txt").write_text("one line\n")
        (directory / "hook").mkdir()
        (directory / "hook" / "sitecustomize.py").write_text(RECORDER)
        log = directory / "files"
        log.touch()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(directory / "hook"), str(directory)]),
            "PERAGO_COUNTED": f"{PRODUCT}{os.sep}",
            "PERAGO_COUNTED_LOG": str(log),
        }
        if way == "stack":
            environment["PERAGO_STACK"] = str(Path(".perago/stack").absolute())
        command = [
            Path(sys.executable).with_name("perago"),
            "run",
            "way_tasks:way",
            "--from",
            "data",
        ]
        with a_worker(directory, environment) if way == "stack" else _nothing():
            on = ["--on", "stack", "--register", "-r", f"way-{os.getpid()}"] if spark else []
            subprocess.run(
                [*command, *on], cwd=directory, env=environment, check=True, stdout=sys.stderr
            )
        steps = [line.split("\t") for line in log.read_text().splitlines()]
        leading_on = {caller for caller, file in steps if caller != file}
        return {
            str(Path(file).relative_to(PRODUCT)): file in leading_on
            for file in sorted({file for _, file in steps})
        }


@contextmanager
def a_worker(directory: Path, environment: dict[str, str]) -> Iterator[None]:
    program = Path(sys.executable).with_name("perago")
    command = [program, "start", "way_tasks", "--on", "stack", "-j", "1"]
    with subprocess.Popen(command, cwd=directory, env=environment) as worker:
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=60)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


if __name__ == "__main__":
    main()
