"""Measures what the project promises about speed and size, and says which promises hold.

Exit code 1 if a bar is missed, or if a side failed or took too long in some round: its other rounds
and all other figures are kept. With --quick everything is small: that shows that the benchmarks
work, and nothing is judged.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import attempt_vs_git
import big_file
import conductor_client
import conductor_throughput
import conductor_worker
import lakefs_attempt
import lakefs_big_object
import lakefs_growth
import spark_checks
import spark_clean
import spark_overhead
import spark_partitions
import spark_scale
import staging_growth
import startup
from measuring import Report, Scale, failures, machine_facts, say, scratch

if TYPE_CHECKING:
    from measuring import Figure

BENCHMARKS = {
    "attempt_vs_git": attempt_vs_git.measure,
    "staging_growth": staging_growth.measure,
    "big_file": big_file.measure,
    "startup": startup.measure,
    "lakefs_attempt": lakefs_attempt.measure,
    "lakefs_growth": lakefs_growth.measure,
    "lakefs_big_object": lakefs_big_object.measure,
    "conductor_throughput": conductor_throughput.measure,
    "conductor_worker": conductor_worker.measure,
    "conductor_client": conductor_client.measure,
    "spark_embedded": spark_clean.measure_files,
    "spark_lakefs": spark_clean.measure_lakefs,
    "spark_partitions": spark_partitions.measure,
    "spark_overhead": spark_overhead.measure,
    "spark_checks": spark_checks.measure,
    "spark_scale": spark_scale.measure,
}

FULL_SECONDS, QUICK_SECONDS = 1800.0, 300.0
"""For one side in one round."""

GROUPS = ("lakefs", "conductor", "spark")
"""Names that stand for all benchmarks that begin with them."""


def main() -> int:
    asked = arguments()
    # SIGTERM, too, stops the servers that were started and removes what was written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scale = Scale(asked.quick, asked.rounds, asked.rows, asked.workdir, not asked.no_peer)
    failures.seconds = asked.timeout or (QUICK_SECONDS if asked.quick else FULL_SECONDS)
    with scratch(asked.dir) as directory:
        facts = machine_facts(directory)
    reports = [report_of(name, asked.dir, scale) for name in chosen(asked.only)]
    if asked.json:
        print(json.dumps(document(reports, facts, scale), indent=1, default=str))
    else:
        show(reports, facts, scale)
    missed = any(verdict(f, scale) == "MISSED" for r in reports for f in r.figures)
    return int(missed or any(report.failures for report in reports))


def report_of(name: str, parent: Path | None, scale: Scale) -> Report:
    """What a benchmark found out, with what failed; without figures if all of it did."""
    say(name)
    report = Report(name, f"{name} failed", "nothing was measured", ())
    with scratch(parent) as directory:
        try:
            report = BENCHMARKS[name](directory, scale)
        except Exception as error:  # noqa: BLE001 - the other benchmarks are run
            traceback.print_exc()
            failures.add("all of it", error)
    figures = report.figures
    if not scale.peer:  # what would compare with it
        figures = [figure for figure in figures if not math.isnan(figure.value)]
    return replace(
        report,
        figures=tuple(figures),
        samples=dict(report.samples),  # one with defaults would not become JSON
        failures=failures.take(),
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="for programs, with every sample")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*BENCHMARKS, *GROUPS],
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}, or all of {', '.join(GROUPS)}; may be repeated",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is judged")
    parser.add_argument("--no-peer", action="store_true", help="leave out perago 0.6.1")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long one side may take in one round, "
        f"{FULL_SECONDS:g} by default and {QUICK_SECONDS:g} with --quick",
    )
    parser.add_argument("--rounds", type=int, help="how often to measure each side")
    parser.add_argument("--rows", type=int, help="events of the songs in the ones on Spark")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure on")
    parser.add_argument(
        "--workdir", type=Path, help="a directory that keeps the events for the next time"
    )
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[str]:
    """In the order of the table, whatever the order they were asked for in."""
    wanted = set(only or BENCHMARKS)
    return [n for n in BENCHMARKS if n in wanted or any(n.startswith(f"{g}_") for g in wanted)]


def verdict(figure: Figure, scale: Scale) -> str:
    if math.isnan(figure.value):
        return "FAILED"
    if figure.passed is None or scale.quick:
        return ""
    return "holds" if figure.passed else "MISSED"


def document(reports: list[Report], facts: dict[str, str | int], scale: Scale) -> dict[str, object]:
    benchmarks = [asdict(report) for report in reports]
    for benchmark in benchmarks:
        for figure in benchmark["figures"]:
            if math.isnan(figure["value"]):  # which JSON doesn't have
                figure["value"] = None
    return {"machine": facts, "scale": asdict(scale), "benchmarks": benchmarks}


def show(reports: list[Report], facts: dict[str, str | int], scale: Scale) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    for report in reports:
        table = Table(title=f"{report.question} ({report.basis})", title_justify="left")
        for heading in ("what", "measured", "value", "bar", ""):
            table.add_column(heading, justify="right" if heading == "value" else "left")
        for figure in report.figures:
            value = "" if math.isnan(figure.value) else f"{figure.value:,.2f}"
            table.add_row(figure.what, figure.measured, value, figure.bar, verdict(figure, scale))
        for failure in report.failures:
            table.add_row(failure.what, failure.reason, "", "", "FAILED")
        console.print(table)
    console.print(", ".join(f"{name}: {fact}" for name, fact in facts.items()))
    if scale.quick:
        console.print("quick: small sizes, nothing is judged")


if __name__ == "__main__":
    sys.exit(main())
