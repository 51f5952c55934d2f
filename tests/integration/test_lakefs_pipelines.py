"""Whole pipelines on a real lakeFS come to what they come to on the embedded store."""

import shutil
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.lakefs import LakeFSBench
from support.one_attempt import AFTER, BEFORE, work

from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, pipeline, task
from perago.adapters.lakefs.cache import ObjectCache
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.declare.loading import load_pipeline
from perago.flow.lifecycle import run_attempt
from perago.model.commit import ACTIONS_PREFIX
from perago.model.run import RunStatus
from perago.testing import Bench, InjectedFaults, RecordingJournal

TASKS = Path(__file__).parents[1] / "acceptance" / "songs_tasks.py"
AT_ONCE = TaskControls(retry=RetryPolicy(count=1, delay_seconds=0))


class Nothing(BaseModel):
    pass


def counting_lines():
    """The pipeline of the acceptance tests, without its module staying: they load it themselves."""
    loaded = load_pipeline(f"{TASKS}:songs")
    del sys.modules[loaded.steps[0].task.module]
    return loaded


def declared(body, *, name="bench.step", **workspace):
    """A task of this body, retried once."""

    @task(
        name=name,
        owner_email="data@example.com",
        workspace=WorkspaceSpec(**workspace),
        controls=AT_ONCE,
    )
    def step(files: Path, params: Nothing) -> Nothing:
        body(files)
        return params

    return step


@pytest.fixture
def embedded(tmp_path):
    bench = Bench(tmp_path / "embedded")
    yield bench
    bench.close()


@pytest.fixture
def bench_on_lakefs(lakefs_server, tmp_path):
    """Makes a bench on the server, with a cache, in a repository with a fence or without."""
    made = []

    def bench_on_lakefs(*, fenced):
        root = tmp_path / "lakefs"
        root.mkdir()
        cache = ObjectCache(root / "cache", limit_bytes=1 << 30)
        made.append(LakeFSBench(root, lakefs_server, fenced=fenced, cache=cache))
        return made[-1]

    yield bench_on_lakefs
    for bench in made:
        bench.close()


@pytest.fixture(params=["cas", "soft"])
def level(request):
    return request.param


@pytest.fixture
def lakefs(bench_on_lakefs, level):
    return bench_on_lakefs(fenced=level == "cas")


@pytest.fixture
def fenced(bench_on_lakefs):
    return bench_on_lakefs(fenced=True)


def run_to_end(bench, chain, params=None, *, runtime=None):
    """Start a chain of tasks at the branch's head and work on it until it is over; its record."""
    tasks = {each.name: each for each in chain.tasks}
    runtime = runtime or bench.runtime()
    run_id = bench.queue.start(chain.plan(params), bench.workspace())
    while bench.queue.get(run_id).status is RunStatus.RUNNING:
        bench.clock.advance(60)  # a retry may have to wait
        for delivery in bench.queue.poll(list(tasks), worker_id="worker-1"):
            run_attempt(delivery, tasks[delivery.attempt.task_name], runtime)
    return bench.queue.get(run_id)


@dataclass(frozen=True)
class Story:
    """What a run did, in words that fit any store."""

    status: RunStatus
    attempts: list
    files: dict
    published: list

    @classmethod
    def of(cls, bench, run):
        commits = list(bench.store.history(bench.repository, bench.branch))[::-1]
        start = [commit.id for commit in commits].index(run.workspace.ref)
        trees = [bench.read(commit.id) for commit in commits[start:]]
        return cls(
            run.status,
            [
                (record.attempt.task_name, record.status, record.output.get("result"))
                for record in run.attempts
            ],
            bench.read(),
            [
                (commit.message, commit.metadata["perago.task_name"], _changes(*before_and_after))
                for commit, before_and_after in zip(
                    commits[start + 1 :], pairwise(trees), strict=True
                )
            ],
        )


def _changes(before, after):
    """Keys that differ between two trees."""
    return sorted(key for key in before | after if before.get(key) != after.get(key))


def assert_chained(bench, run):
    """Each step began where the one before ended, and each commit's only parent is its input."""
    ref = run.workspace.ref
    for record in run.attempts:
        assert record.input["workspace"]["ref"] == ref
        if workspace := record.output.get("workspace"):
            assert workspace["repository"] == bench.repository
            commit = bench.store.get_commit(bench.repository, workspace["ref"])
            assert commit.id == ref or commit.is_only_child_of(ref)
            ref = commit.id
    assert bench.head == ref == run.output_ref


def assert_nothing_left(bench):
    assert bench.staging_branches() == []
    assert list(bench.attempts.glob("*")) == []
    assert bench.store.uncommitted(bench.repository, bench.branch) == []


def empty(files):
    shutil.rmtree(files)
    files.mkdir()


def write_report(files):
    (files / "report.txt").write_text("done\n")


def scribble(files):
    (files / "scribble").write_text("never to be seen")


CHAINS = {
    "counted lines": (
        counting_lines(),
        {},
        {"raw/a.txt": "one\ntwo\n", "raw/b.txt": "three\n", "ünïcode & spaces.txt": "kept"},
    ),
    "steps that change nothing": (
        pipeline(
            "quiet",
            [
                declared(lambda _: None, name="quiet.nothing"),
                declared(scribble, name="quiet.look", read_only=True),
                declared(write_report, name="quiet.write", prefix="below/here"),
                declared(lambda _: None, name="quiet.after", prefix="below"),
                declared(empty, name="quiet.empty", prefix="below/there"),
            ],
        ),
        {},
        {"a": "1", "below/there/b": "2", "below/theremin": "3", "below/here/c/d": "4"},
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_pipeline_comes_to_the_same(chain, embedded, lakefs, level):
    steps, params, seed = CHAINS[chain]
    stories, journal = [], RecordingJournal()
    for bench in (embedded, lakefs):
        if seed:
            bench.write(seed)
        run = run_to_end(bench, steps, params, runtime=bench.runtime(journal=journal))
        assert run.status is RunStatus.COMPLETED
        assert_chained(bench, run)
        assert_nothing_left(bench)
        stories.append(Story.of(bench, run))
    on_embedded, on_lakefs = stories
    assert on_lakefs == on_embedded
    assert journal.of("publish")["level"] == level


def test_a_step_that_changes_nothing_makes_no_commit_and_sends_nothing(lakefs):
    lakefs.write(BEFORE)
    before = lakefs.history()
    journal = RecordingJournal()
    quiet = pipeline("quiet", [declared(lambda _: None)])
    run = run_to_end(lakefs, quiet, runtime=lakefs.runtime(journal=journal))
    assert run.output_ref == run.workspace.ref
    assert lakefs.history() == before
    assert "stage.branch" not in journal.steps()
    assert journal.of("publish")["path"] == "unchanged"


def test_a_read_only_step_never_looks_at_the_branch(lakefs):
    start = lakefs.write(BEFORE)
    journal = RecordingJournal()
    look = declared(scribble, read_only=True)
    lakefs.start(look)
    elsewhere = lakefs.write({"a.txt": "moved on"})
    outcome = lakefs.attempt(look, lakefs.runtime(journal=journal))
    assert outcome.report.output["workspace"]["ref"] == start
    assert lakefs.head == elsewhere
    assert journal.of("read_only.discarded")["files"] == ["scribble"]
    assert not {"fence1", "stage.branch", "publish"} & set(journal.steps())


def test_only_what_is_below_the_prefix_is_there_and_can_be_changed(lakefs):
    outside = {"other": b"1", "songs": b"2", "songsmith/x": b"3"}
    lakefs.write(outside | {"songs/in": b"4", "songs/deep/er": b"5"})
    seen = []

    def replace_all(files):
        seen.extend(sorted(str(p.relative_to(files)) for p in files.rglob("*") if p.is_file()))
        empty(files)
        (files / "new").write_text("6")

    run = run_to_end(lakefs, pipeline("p", [declared(replace_all, prefix="songs")]))
    assert run.status is RunStatus.COMPLETED
    assert seen == ["deep/er", "in"]
    assert lakefs.read() == outside | {"songs/new": b"6"}


# --- the repository's own actions ----------------------------------------------------------------


def fence_at_head(bench):
    entries = bench.store.list_objects(bench.repository, bench.branch, prefix=ACTIONS_PREFIX)
    return [(entry.key, entry.size) for entry in entries]


def test_the_actions_are_not_fetched_and_survive_a_body_that_removes_everything(fenced):
    fenced.write(BEFORE)
    seen = []

    def wipe(files):
        seen.extend(path.name for path in files.iterdir())
        empty(files)

    journal = RecordingJournal()
    run = run_to_end(
        fenced, pipeline("p", [declared(wipe)]), runtime=fenced.runtime(journal=journal)
    )
    assert run.status is RunStatus.COMPLETED
    assert sorted(seen) == ["a.txt", "b.txt", "folder"]
    assert journal.of("fetch")["objects"] == len(BEFORE)
    assert fenced.read() == {}
    assert fence_at_head(fenced) == [(FENCE_KEY, len(FENCE_ACTION))]
    assert journal.of("publish")["level"] == "cas"


@pytest.mark.parametrize("name", [FENCE_KEY, f"{ACTIONS_PREFIX}another.yaml"])
def test_a_body_that_writes_an_action_is_refused(fenced, name):
    head = fenced.write(BEFORE)

    def act(files):
        (files / name).parent.mkdir()
        (files / name).write_text("on: [pre-merge]")

    step = declared(act)
    fenced.start(step)
    outcome = fenced.attempt(step)
    assert outcome.report.reason.startswith("unsupported_file: ")
    assert "actions" in outcome.report.reason
    assert fenced.head == head
    assert fence_at_head(fenced) == [(FENCE_KEY, len(FENCE_ACTION))]
    assert_nothing_left(fenced)


# --- what was published and never accepted -------------------------------------------------------


def lose_worker(_name):
    raise TaskFailed("lost right after publishing")


@pytest.fixture
def replacing(lakefs, monkeypatch):
    """An attempt of ``work`` on a branch that another commit was put on since; its journal."""
    monkeypatch.setenv("BODY", "change")
    lakefs.write(BEFORE)

    def replacing(*, policy, theirs):
        lakefs.start(work)
        if theirs:
            abandoned = lakefs.write({"foreign": "not ours"})
        else:
            lost = InjectedFaults({"publish.done": lose_worker})
            assert not lakefs.attempt(work, lakefs.runtime(failpoints=lost)).report.completed
            abandoned = lakefs.head
            retry = lakefs.queue.runs()[0].attempts[-1]
            assert retry.attempt.retry_count == 1
        journal = RecordingJournal()
        outcome = lakefs.attempt(work, replace(lakefs.runtime(journal=journal), replace=policy))
        return outcome, abandoned, journal

    return replacing


@pytest.mark.parametrize(("policy", "theirs"), [("any", False), ("own", False), ("any", True)])
def test_an_abandoned_commit_is_replaced_and_the_log_says_which(lakefs, replacing, policy, theirs):
    before = lakefs.history()
    outcome, abandoned, journal = replacing(policy=policy, theirs=theirs)
    assert outcome.report.completed, outcome.report.reason
    assert lakefs.history() == [outcome.published.ref, *before]
    assert lakefs.read() == AFTER
    replaced = journal.of("publish.replaced")
    assert (replaced["replaced"], replaced["by"]) == (abandoned, outcome.published.ref)
    assert journal.of("publish")["replaced"] == abandoned
    assert_nothing_left(lakefs)


def test_own_refuses_to_replace_what_another_wrote(lakefs, replacing):
    before = lakefs.history()
    outcome, theirs, journal = replacing(policy="own", theirs=True)
    assert outcome.report.reason.startswith("publish_fence: ")
    assert "PERAGO_REPLACE=own" in outcome.report.reason
    assert theirs in outcome.report.reason
    assert lakefs.history() == [theirs, *before]
    assert "publish.replaced" not in journal.steps()
    assert_nothing_left(lakefs)


def test_a_failing_attempt_leaves_nothing_and_its_retry_publishes(lakefs):
    head = lakefs.write(BEFORE)
    occasions = []

    def fail_once(files):
        (files / "a.txt").write_text("half")
        if not occasions:
            occasions.append("failed")
            raise TaskFailed("not this time")
        (files / "a.txt").write_text("whole")

    step = declared(fail_once)
    lakefs.start(step)
    assert lakefs.attempt(step).report.reason == "task_failed: not this time"
    assert lakefs.head == head
    assert_nothing_left(lakefs)
    assert lakefs.attempt(step).report.completed
    assert lakefs.read() == BEFORE | {"a.txt": b"whole"}
    assert lakefs.history()[1] == head
