"""The benchmarks' runner: a side that fails or hangs costs its own samples and no others."""

import importlib
import json
import math
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def run():
    """``benchmarks/run.py`` as a module; the benchmarks are scripts beside it."""
    names = {path.stem for path in BENCHMARKS.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("run")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@pytest.fixture
def bench(run, monkeypatch, capsys, tmp_path):
    """Runs benchmarks of made-up sides; the exit code and what was printed."""
    monkeypatch.setattr(run, "scratch", lambda _: _Opened(tmp_path))
    monkeypatch.setattr(run, "machine_facts", lambda _: {"cores": 2})

    def bench(benchmarks, *arguments):
        monkeypatch.setattr(run, "BENCHMARKS", benchmarks)
        monkeypatch.setattr(sys, "argv", ["run.py", "--rounds", "3", *arguments])
        return run.main(), capsys.readouterr().out

    return bench


class _Opened:
    def __init__(self, path):
        self._path = path

    def __enter__(self):
        return self._path

    def __exit__(self, *_):
        return None


@pytest.fixture
def compared(run):
    """A benchmark of these sides, with a figure that compares "ours" and "theirs"."""
    measuring = sys.modules["measuring"]

    def compared(name, **sides):
        def measure(_scratch, scale):
            samples = measuring.interleaved(sides, rounds=scale.rounds_or(3))
            ours, theirs = (measuring.median(samples[side]) for side in ("ours", "theirs"))
            figures = (
                measuring.at_most("times theirs", "", ours / theirs, 2.0, "x"),
                measuring.at_most("ours alone", "", ours, 2.0, " s"),
            )
            return measuring.Report(name, name, "medians", figures, samples)

        return measure

    return compared


def turns(*values):
    """A side that returns each value in turn, or raises it; the first is the warm-up's."""
    left = list(values)

    def side():
        value = left.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    return side


def hang():
    time.sleep(60)


def document(out):
    return {found["name"]: found for found in json.loads(out)["benchmarks"]}


def test_all_figures_are_written_if_nothing_fails(bench, compared):
    sides = {"ours": turns(9.0, 1.0, 1.0, 1.0), "theirs": turns(9.0, 2.0, 2.0, 2.0)}
    code, out = bench({"fine": compared("fine", **sides)}, "--json")
    assert code == 0
    found = document(out)["fine"]
    assert [figure["value"] for figure in found["figures"]] == [0.5, 1.0]
    assert found["samples"] == {"ours": [1.0] * 3, "theirs": [2.0] * 3}
    assert found["failures"] == []


def test_a_side_that_fails_in_one_round_loses_that_sample_only(bench, compared):
    broken = {
        "ours": turns(9.0, 1.0, RuntimeError("out of luck"), 1.0),
        "theirs": turns(9.0, 2.0, 2.0, 2.0),
    }
    fine = {"ours": turns(9.0, 1.0, 1.0, 1.0), "theirs": turns(9.0, 2.0, 2.0, 2.0)}
    code, out = bench(
        {"broken": compared("broken", **broken), "fine": compared("fine", **fine)}, "--json"
    )
    assert code == 1
    found = document(out)
    assert found["broken"]["samples"] == {"ours": [1.0] * 2, "theirs": [2.0] * 3}
    assert [figure["value"] for figure in found["broken"]["figures"]] == [0.5, 1.0]
    assert found["broken"]["failures"] == [{"what": "ours, round 2", "reason": "out of luck"}]
    assert found["fine"]["failures"] == []


def test_a_side_that_hangs_is_given_up_and_the_other_is_kept(bench, compared):
    sides = {"ours": turns(9.0, 1.0, 1.0, 1.0), "theirs": hang}
    began = time.monotonic()
    code, out = bench({"hung": compared("hung", **sides)}, "--json", "--timeout", "0.2")
    assert time.monotonic() - began < 30
    assert code == 1
    found = document(out)["hung"]
    assert [figure["value"] for figure in found["figures"]] == [None, 1.0]
    assert [figure["passed"] for figure in found["figures"]] == [None, True]
    assert found["samples"]["ours"] == [1.0] * 3
    assert [failure["what"] for failure in found["failures"]] == [
        "theirs, warm-up",
        *(f"theirs, round {number}" for number in (1, 2, 3)),
    ]
    assert {failure["reason"] for failure in found["failures"]} == {"took longer than 0.2 s"}


def test_a_benchmark_that_fails_before_it_measures_leaves_the_others(bench, compared):
    def broken(_scratch, _scale):
        raise OSError("no such server")

    sides = {"ours": turns(9.0, 1.0, 1.0, 1.0), "theirs": turns(9.0, 2.0, 2.0, 2.0)}
    code, out = bench({"broken": broken, "fine": compared("fine", **sides)}, "--json")
    assert code == 1
    found = document(out)
    assert found["broken"]["figures"] == []
    assert found["broken"]["failures"] == [{"what": "all of it", "reason": "no such server"}]
    assert len(found["fine"]["figures"]) == 2


def test_the_table_shows_what_failed(bench, compared):
    sides = {
        "ours": turns(9.0, 1.0, 1.0, 1.0),
        "theirs": turns(*[RuntimeError("out of luck")] * 4),
    }
    code, out = bench({"broken": compared("broken", **sides)})
    assert code == 1
    assert out.count("out of luck") == 4
    (line,) = [line for line in out.splitlines() if "times theirs" in line]
    assert "FAILED" in line
    assert "nan" not in out


def test_a_bar_that_is_missed_is_still_exit_code_1_and_quick_judges_nothing(bench, compared):
    def sides():
        return {"ours": turns(9.0, 5.0, 5.0, 5.0), "theirs": turns(9.0, 2.0, 2.0, 2.0)}

    assert bench({"slow": compared("slow", **sides())})[0] == 1
    assert bench({"slow": compared("slow", **sides())}, "--quick")[0] == 0


def test_without_the_peer_no_figure_needs_it(run, bench, compared):
    def measure(_scratch, scale):
        assert not scale.peer
        figure = sys.modules["measuring"].at_most("times the peer", "", math.nan, 1.0, "x")
        return sys.modules["measuring"].Report("alone", "alone", "", (figure,))

    code, out = bench({"alone": measure}, "--json", "--no-peer")
    assert code == 0
    assert document(out)["alone"]["figures"] == []
