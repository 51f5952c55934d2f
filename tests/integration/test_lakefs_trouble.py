"""What is wrong around an attempt on a real lakeFS, each its own clear error, nothing half done."""

import resource
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from lakefs_sdk import Configuration
from lakefs_sdk.client import LakeFSClient
from lakefs_sdk.models import BranchProtectionRule
from support.lakefs import LakeFSBench, store_on
from support.one_attempt import AFTER, BEFORE, work

from perago.adapters.lakefs import client
from perago.adapters.lakefs.cache import ObjectCache
from perago.errors import StoreRefusedError
from perago.model.attempt import TaskStatus
from perago.model.outcome import PublishPath
from perago.operations.leftover_gc import ORPHAN_SECONDS, collect_leftovers
from perago.testing import InjectedFaults, RecordingJournal

RULE_SECONDS = 60
KIB = 1 << 10


@pytest.fixture(autouse=True)
def _change(monkeypatch):
    monkeypatch.setenv("BODY", "change")


@pytest.fixture
def bench_on(tmp_path):
    made = []

    def bench_on(server, *, fenced=True, cache=None):
        bench = LakeFSBench(tmp_path, server, fenced=fenced, cache=cache)
        bench.write(BEFORE)
        made.append(bench)
        return bench

    yield bench_on
    for bench in made:
        bench.close()


@pytest.fixture(params=["cas", "soft"])
def bench(request, bench_on, lakefs_server):
    """With a fence and without."""
    return bench_on(lakefs_server, fenced=request.param == "cas")


def lose_worker(_name):
    raise ConnectionError("lost right after publishing")


def abandon(bench):
    """Leave a head that was published and never accepted; its retry is due."""
    bench.start(work)
    lost = InjectedFaults({"publish.done": lose_worker})
    assert not bench.attempt(work, bench.runtime(failpoints=lost)).report.completed
    return bench.head


def assert_untouched(bench, outcome, head, *, code, says):
    """It failed with that code and those words; the branch is where it was, nothing is left."""
    assert outcome.report.status is TaskStatus.FAILED
    assert outcome.report.reason.startswith(f"{code}: "), outcome.report.reason
    for words in says:
        assert words in outcome.report.reason
    assert outcome.published is None
    assert bench.head == head
    assert bench.staging_branches() == []
    assert list(bench.attempts.glob("*")) == []


def assert_published(bench, outcome, before):
    assert outcome.report.completed, outcome.report.reason
    assert bench.history() == [outcome.published.ref, before, *bench.history()[2:]]
    assert bench.staging_branches() == []
    assert list(bench.attempts.glob("*")) == []


# --- who we are and where we work ----------------------------------------------------------------


def test_wrong_credentials(bench, lakefs_server):
    head = bench.head
    bench.start(work)
    wrong = "the-wrong-secret-that-must-not-be-shown"
    store = store_on(lakefs_server, secret=wrong)
    journal = RecordingJournal()
    outcome = bench.attempt(work, bench.runtime(store=store, journal=journal))
    store.close()
    says = ["rejects these credentials", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"]
    assert_untouched(bench, outcome, head, code="store_access", says=says)
    assert wrong not in f"{outcome} {journal.events} {journal.tracebacks} {store}"


def test_a_repository_that_does_not_exist(bench):
    head = bench.head
    workspace = bench.workspace().model_copy(update={"repository": "never-made"})
    bench.queue.start(bench.plan(work), workspace)
    outcome = bench.attempt(work)
    says = ["workspace.repository doesn't exist", "'never-made'"]
    assert_untouched(bench, outcome, head, code="task_input", says=says)


def test_a_commit_that_does_not_exist(bench):
    head = bench.head
    bench.start(work, ref="0" * 64)
    outcome = bench.attempt(work)
    says = ["workspace.ref doesn't exist", "0" * 64]
    assert_untouched(bench, outcome, head, code="task_input", says=says)


def test_a_branch_that_is_gone_when_it_comes_to_publishing(bench):
    head = bench.head
    workspace = bench.workspace().model_copy(update={"branch": "gone"})
    bench.queue.start(bench.plan(work), workspace)
    outcome = bench.attempt(work)
    says = ["workspace.branch 'gone', is gone"]
    assert_untouched(bench, outcome, head, code="publish_fence", says=says)


# --- branches that don't allow everything --------------------------------------------------------


def protect(bench, server):
    """Protect the branch, and wait until the server heeds that."""
    client = LakeFSClient(
        Configuration(
            host=f"{server.endpoint}/api/v1",
            username=server.access_key_id,
            password=server.secret_access_key,
        )
    )
    rule = BranchProtectionRule(pattern=bench.branch)
    client.repositories_api.set_branch_protection_rules(bench.repository, [rule])
    client.repositories_api.api_client.rest_client.pool_manager.clear()
    deadline = time.monotonic() + RULE_SECONDS
    while time.monotonic() < deadline:
        try:
            bench.store.relocate(bench.repository, bench.branch, bench.head, expected_head=None)
        except StoreRefusedError:
            return
        time.sleep(0.05)
    pytest.fail("the server never heeded the rule")


def test_a_protected_branch_takes_merges(bench, lakefs_server):
    protect(bench, lakefs_server)
    before = bench.head
    bench.start(work)
    outcome = bench.attempt(work)
    assert_published(bench, outcome, before)
    assert outcome.published.path is PublishPath.MERGED


def test_a_protected_branch_refuses_a_replacement_and_says_why(bench, lakefs_server):
    abandoned = abandon(bench)
    protect(bench, lakefs_server)
    outcome = bench.attempt(work)
    says = ["branch 'main' is protected", "protection rules"]
    assert_untouched(bench, outcome, abandoned, code="publish_fence", says=says)


def test_a_dirty_branch_takes_no_merge(bench):
    head = bench.head
    bench.start(work)
    bench.put({"left.txt": "never committed"})
    outcome = bench.attempt(work)
    assert_untouched(bench, outcome, head, code="publish_fence", says=["uncommitted"])
    assert bench.store.uncommitted(bench.repository, bench.branch) == ["left.txt"]


def test_a_dirty_branch_takes_no_replacement(bench):
    abandoned = abandon(bench)
    bench.put({"left.txt": "never committed"})
    outcome = bench.attempt(work)
    says = ["uncommitted objects: left.txt"]
    assert_untouched(bench, outcome, abandoned, code="publish_fence", says=says)
    assert bench.store.uncommitted(bench.repository, bench.branch) == ["left.txt"]


# --- a server that is restarted ------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch):
    """However slow this machine starts a server, reads and uploads are still waiting for it."""
    for name in ("READ_BACKOFF", "TRANSFER_BACKOFF"):
        patient = replace(getattr(client, name), attempts=200, longest=0.2)
        monkeypatch.setattr(client, name, patient)


@contextmanager
def restarting(server, at):
    """Failpoints: there the server is stopped at once, and started again while we go on."""
    restart = threading.Thread(target=server.restart)

    def stop_and_restart(_name):
        server.stop()
        restart.start()

    yield InjectedFaults({at: stop_and_restart})
    restart.join()


@pytest.fixture
def attempt_over_restart(patient, bench_on, mortal_server):
    """An attempt, at a failpoint of which the server is stopped and started again."""

    def attempt_over_restart(at):
        bench = bench_on(mortal_server)
        before = bench.head
        bench.start(work)
        with restarting(mortal_server, at) as failpoints:
            return bench, before, bench.attempt(work, bench.runtime(failpoints=failpoints))

    return attempt_over_restart


@pytest.mark.parametrize(
    "at", ["input.validated", "directory.created", "staging.branch_created", "fence2.passed"]
)
def test_an_attempt_waits_for_a_server_that_is_restarted(at, attempt_over_restart):
    bench, before, outcome = attempt_over_restart(at)
    assert_published(bench, outcome, before)
    assert bench.read() == AFTER


@pytest.mark.parametrize("at", ["fence1.passed", "staging.uploaded"])
def test_what_changes_a_branch_is_not_sent_again_and_the_retry_is_due(at, attempt_over_restart):
    bench, before, outcome = attempt_over_restart(at)
    assert outcome.report.reason.startswith("store_unavailable: ")
    assert "no connection to lakeFS" in outcome.report.reason
    assert bench.head == before
    retry = bench.attempt(work)
    later = time.time() + 2 * ORPHAN_SECONDS
    collect_leftovers(bench.store, bench.attempts, now=later)
    assert_published(bench, retry, before)


# --- a disk that is full -------------------------------------------------------------------------


can_fill_disks = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux limits another process's files"
)


@contextmanager
def disk_of(pid=0):
    """Fills a process's disk, as far as it can tell: writes beyond so many bytes of a file fail."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)

    def fill(size=0):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))

    try:
        yield fill
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@can_fill_disks
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("at", "code", "says"),
    [
        ("fence1.passed", "store_unavailable", "uploading '"),
        ("staging.uploaded", "answer_lost", "committing on "),
        ("publish.decided", "publish_fence", "file too large"),
    ],
)
def test_the_servers_disk_is_full(at, code, says, bench_on, mortal_server):
    bench = bench_on(mortal_server)
    before = bench.head
    bench.start(work)
    with disk_of(mortal_server.pid) as fill:
        faults = InjectedFaults({at: lambda _: fill()})
        outcome = bench.attempt(work, bench.runtime(failpoints=faults))
    assert_untouched(bench, outcome, before, code=code, says=[says])
    assert_published(bench, bench.attempt(work), before)


@can_fill_disks
def test_the_workspaces_disk_is_full(bench):
    head = bench.write({"large.bin": bytes(600 * KIB)})
    bench.start(work)
    with disk_of() as fill:
        fill(512 * KIB)
        outcome = bench.attempt(work)
    says = ["can't write", "large.bin", "File too large", "free space"]
    assert_untouched(bench, outcome, head, code="store_full", says=says)
    assert_published(bench, bench.attempt(work), head)


@can_fill_disks
def test_the_caches_disk_is_full(bench_on, lakefs_server, tmp_path, monkeypatch):
    """The cache gives up without a word, and takes up again when there is room."""
    cache = ObjectCache(tmp_path / "cache", limit_bytes=1 << 30)
    bench = bench_on(lakefs_server, cache=cache)
    parts = {f"part-{number}": bytes([number]) * (100 * KIB) for number in range(16)}
    bench.write(parts)
    monkeypatch.setenv("BODY", "nothing")

    def objects_moved():
        journal = RecordingJournal()
        bench.start(work)
        outcome = bench.attempt(work, bench.runtime(journal=journal))
        assert outcome.report.completed, outcome.report.reason
        return journal.of("fetch")["objects_moved"]

    everything = len(BEFORE | parts)
    with disk_of() as fill:
        fill(512 * KIB)  # each object fits, and all of them together don't
        assert objects_moved() == everything
        assert objects_moved() == everything
    assert objects_moved() == everything
    assert objects_moved() == 0
