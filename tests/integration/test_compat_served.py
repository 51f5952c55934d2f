"""Task modules written for perago 0.6.1, as they are, served on the real servers."""

import sys
from pathlib import Path

import pytest
from support.worker import SEED

from perago import pipeline
from perago.declare.loading import load_module, tasks_of

pytestmark = pytest.mark.slow

MODULES = Path(__file__).parents[1] / "compat" / "modules"
SERVED = ("features_build", "metadata_validate", "catalog_report", "spelled_otherwise")
DATA = SEED | {
    "audio/features/raw/manifest.csv": b"a,1\nb,2\n",
    "audio/features/raw/more/rows.csv": b"c,3\n",
    "audio/spelled/raw/manifest.csv": b"x\n",
}


@pytest.fixture
def tasks(monkeypatch):
    """The one task of each module."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Other tests of this process may have loaded copies of them.
    monkeypatch.setattr("perago.declare.task._declared", {})
    for name in SERVED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded = {name: tasks_of(load_module(str(MODULES / f"{name}.py"))) for name in SERVED}
    assert all(len(found) == 1 for found in loaded.values())
    return {name: found[0] for name, found in loaded.items()}


@pytest.fixture
def served(place):
    """A worker of all of them, and a commit with the files they want."""
    place.seed = place.bench.commit("main", DATA).id
    place.worker(*(MODULES / f"{name}.py" for name in SERVED), jobs=2)
    return place


def test_a_chain_of_them_runs_and_publishes(served, tasks):
    window = {"begin": "2024-02-29", "seconds": 1.5}
    chain = pipeline(
        "compat_chain",
        [
            tasks["features_build"].with_params(feature_set="loud", windows=[window]),
            tasks["metadata_validate"].with_params(song={"song_id": "s1", "seconds": 12}),
            tasks["catalog_report"].with_params(title="all"),
            tasks["spelled_otherwise"].with_params(times=2),
        ],
    )
    run = served.completed(served.start(chain))
    built, validated, reported, spelled = (a.output for a in run.attempts)
    assert built["result"] == {"row_count": 3, "feature_count": 2, "windows": [window]}
    assert validated == {"result": {"valid": False, "reason": "s1 is too short"}}
    assert reported["result"] == {"title": "all", "files": len(DATA) + 1}
    assert reported["workspace"] == built["workspace"], "it only read"
    assert spelled["result"] == {"times": 2}
    assert [commit.id for commit in served.history()[1:]] == [
        built["workspace"]["ref"],
        spelled["workspace"]["ref"],
    ]
    assert served.tree() == DATA | {
        "audio/features/built/features.csv": b"raw,2\n" * 3,
        "audio/spelled/spelled.txt": b"otherwise\n" * 2,
    }
    served.workers[0].stop()
    served.assert_nothing_left()


def test_a_task_that_says_it_failed_is_retried_as_declared_and_one_that_gives_up_is_not(
    served, tasks
):
    build = tasks["features_build"]
    for mood, status, attempts, said in (
        ("tired", "FAILED", 3, "the feature service is tired"),
        ("hopeless", "FAILED_WITH_TERMINAL_ERROR", 1, "no features will ever come of this"),
    ):
        chain = pipeline(f"compat_{mood}", [build.with_params(feature_set="x", mood=mood)])
        run = served.ended(served.start(chain))
        assert run.status == "FAILED"
        assert [str(a.status) for a in run.attempts] == [status] * attempts
        assert all(said in a.reason and not a.output for a in run.attempts)
    assert served.tree() == DATA


def test_an_error_class_of_the_modules_own_says_its_reason(served, tasks):
    chain = pipeline("compat_down", [tasks["spelled_otherwise"].with_params(down=True)])
    run = served.ended(served.start(chain))
    assert ["the spelling service answered 503" in a.reason for a in run.attempts] == [True, True]


def test_params_nobody_knows_are_ignored_unless_they_are_to_be_strict(served, tasks):
    song = {"song_id": "s1", "seconds": 99}
    validated = tasks["metadata_validate"].with_params(song=song)
    chain = pipeline("compat_more", [tasks["catalog_report"], validated])
    given = {
        "workspace": served.workspace.model_dump(),
        "params": {
            "catalog_report": {"title": "some", "colour": "red"},
            "metadata_validate": {"song": song | {"colour": "red"}},
        },
    }
    run = served.ended(served.start_raw(chain, given))
    reported, validated = run.attempts
    assert reported.output["result"]["title"] == "some"
    assert validated.status == "FAILED"
    assert "song.colour: unknown field" in validated.reason


def test_a_guardrail_of_theirs_that_the_input_violates_ends_the_run(place, tasks):
    place.worker(MODULES / "features_build.py")
    chain = pipeline("compat_bare", [tasks["features_build"].with_params(feature_set="x")])
    run = place.ended(place.start(chain))
    (attempt,) = run.attempts
    assert attempt.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "3 pre guardrail(s) violated" in attempt.reason
    assert "require_file('raw/manifest.csv')" in attempt.reason
