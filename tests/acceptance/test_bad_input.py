"""Whatever is wrong with what an attempt is given, it says what, and the target is as it was."""

from __future__ import annotations

import os
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.embedded.store import EmbeddedStore
from perago.errors import BranchBusyError
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import TaskStatus
from perago.testing import Bench, InjectedFaults

NOBODY = 65534
MEGABYTE = 1 << 20


class Limit(BaseModel):
    limit: int = 1


class Total(BaseModel):
    total: float = 0.0


def declare(body=lambda _workspace, _params: Total(), *, strict=False, **workspace):
    @task(
        name="bad.input",
        owner_email="data@example.com",
        workspace=WorkspaceSpec(**workspace),
        strict_params=strict,
    )
    def step(workspace: Path, params: Limit) -> Total:
        return body(workspace, params)

    return step


@pytest.fixture
def bench():
    with tempfile.TemporaryDirectory(prefix="perago-bad-") as root:  # open to users but root, too
        Path(root).chmod(0o755)
        bench = Bench(Path(root))
        bench.write({"a": "1"})
        yield bench
        bench.close()


@pytest.fixture
def refused(bench):
    """Run one attempt that must fail with a target untouched; its reason."""

    def attempt(step, *, raw=None, ref=None, faults=None):
        head, history = bench.head, bench.history()
        bench.start(step, ref=ref)
        delivery = bench.poll(step)
        if raw is not None:
            delivery = replace(delivery, input=raw(dict(delivery.input)))
        actions = {name: (lambda _name, act=act: act()) for name, act in (faults or {}).items()}
        outcome = run_attempt(delivery, step, bench.runtime(failpoints=InjectedFaults(actions)))
        assert outcome.report.status is TaskStatus.FAILED
        assert outcome.report.output == {}
        assert (bench.head, bench.history()) == (head, history)
        assert bench.staging_branches() == []
        assert not bench.attempts.exists() or list(bench.attempts.iterdir()) == []
        assert "(fix: " in outcome.report.reason
        return outcome.report.reason

    return attempt


def without(*path):
    def spoil(raw):
        target = raw
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]
        return raw

    return spoil


def with_value(value, *path):
    def spoil(raw):
        target = raw
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        return raw

    return spoil


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (without("workspace"), "'workspace' is missing"),
        (without("params"), "'params' is missing"),
        (with_value(1, "extra"), "'extra' is not expected"),
        (without("workspace", "ref"), "workspace.ref: Field required"),
        (without("workspace", "branch"), "workspace.branch: Field required"),
        (with_value("x", "workspace", "tag"), "workspace.tag: Extra inputs are not permitted"),
        (
            with_value("tag", "workspace", "ref_type"),
            "workspace.ref_type: Input should be 'commit'",
        ),
        (with_value("tag", "workspace", "ref_type"), "got 'tag'"),
        (with_value("", "workspace", "branch"), "workspace.branch: "),
        (with_value(7, "workspace", "ref"), "got 7"),
        (with_value([], "workspace"), "got []"),
        (with_value("many", "params", "limit"), "'many'"),
        (with_value("many", "params", "limit"), "limit"),
    ],
)
def test_a_malformed_input_is_refused_by_field_and_value(refused, spoil, told):
    ran = []
    step = declare(lambda *given: ran.append(given) or Total())
    reason = refused(step, raw=spoil)
    assert reason.startswith("task_input: ")
    assert told in reason
    assert ran == []


def test_a_workspace_free_task_takes_no_workspace(bench):
    @task(name="bad.plain", owner_email="data@example.com")
    def plain(params: Limit) -> Total:
        return Total()

    bench.start(plain)
    delivery = bench.poll(plain)
    delivery = replace(delivery, input={**delivery.input, "workspace": {}})
    outcome = run_attempt(delivery, plain, bench.runtime())
    assert "'workspace' is not expected" in outcome.report.reason


def test_unknown_params_are_refused_under_strict_params(refused):
    reason = refused(declare(strict=True), raw=with_value(3, "params", "limmit"))
    assert "limmit" in reason
    assert "with the fields: limit" in reason


def test_unknown_params_are_let_through_otherwise(bench):
    step = declare()
    bench.start(step)
    delivery = bench.poll(step)
    delivery = replace(delivery, input={**delivery.input, "params": {"limmit": 3}})
    assert run_attempt(delivery, step, bench.runtime()).accepted


def test_an_unknown_ref_is_refused(refused):
    reason = refused(declare(), raw=with_value("f" * 64, "workspace", "ref"))
    assert "workspace.ref doesn't exist" in reason
    assert f"'{'f' * 64}'" in reason


def test_an_unknown_repository_is_refused(refused):
    reason = refused(declare(), raw=with_value("elsewhere", "workspace", "repository"))
    assert "workspace.repository doesn't exist" in reason
    assert "'elsewhere'" in reason


def test_a_branch_name_is_no_commit(bench, refused):
    reason = refused(declare(), raw=with_value("main", "workspace", "ref"))
    assert "workspace.ref 'main' is not a commit id" in reason
    assert bench.head in reason


def test_a_target_branch_that_is_gone_is_refused(refused):
    reason = refused(declare(), raw=with_value("gone", "workspace", "branch"))
    assert "workspace.branch 'gone'" in reason


@pytest.mark.parametrize(
    "key", ["../x", "/x", "a//b", "dir/", "bell\x07", "a/b", "sub/.perago-attempt.json", "./x"]
)
def test_a_key_that_can_not_be_a_file_is_refused_by_name(bench, refused, key):
    ref = bench.write({key: "hostile"})
    reason = refused(declare(), ref=ref)
    assert reason.startswith("unsafe_key: ")
    assert repr("a" if key == "a/b" else key) in reason


def test_keys_that_fold_into_one_file_are_refused_where_they_would(bench, refused, monkeypatch):
    monkeypatch.setattr("perago.adapters.local.engine.folds_case", lambda _directory: True)
    reason = refused(declare(), ref=bench.write({"Songs/x": "1", "songs/y": "2"}))
    assert "'songs/y'" in reason
    assert "can't tell it from 'Songs'" in reason


def test_an_unsafe_key_outside_the_prefix_is_nobodys_business(bench):
    ref = bench.write({"songs/x": "1", "../x": "2"})
    step = declare(prefix="songs")
    bench.start(step, ref=ref)
    assert bench.attempt(step).accepted


def test_a_result_of_the_wrong_type_is_refused(refused):
    reason = refused(declare(lambda *_given: {"total": 1.0}))
    assert "returned {'total': 1.0}, which is not a Total" in reason
    assert "return Total(…)" in reason


def test_a_result_that_is_not_json_is_refused(refused):
    reason = refused(declare(lambda *_given: Total(total=float("inf"))))
    assert "a Total that isn't JSON" in reason


def with_room_for(size):
    """Let no file of this process grow beyond that size."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def with_all_the_room():
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def write_much(workspace, _params):
    (workspace / "big").write_bytes(os.urandom(4 * MEGABYTE))
    return Total()


@pytest.mark.parametrize("moment", ["input.validated", "directory.created", "fence1.passed"])
def test_a_disk_without_room_fails_the_attempt_and_leaves_nothing(bench, refused, moment):
    bench.write({"large": os.urandom(4 * MEGABYTE)})
    room = 0 if moment == "input.validated" else 2 * MEGABYTE
    faults = {moment: lambda: with_room_for(room), "report.ready": with_all_the_room}
    try:
        reason = refused(declare(write_much), faults=faults)
    finally:
        with_all_the_room()
    assert "File too large" in reason
    assert "free " in reason
    assert bench.store.verify().clean


def test_a_read_only_workspace_root_is_told_with_the_setting_to_change(bench, refused):
    bench.attempts.mkdir(mode=0o555)

    def become(user):
        if os.getuid() == 0:
            os.seteuid(user)

    try:
        reason = refused(
            declare(),
            faults={"input.validated": lambda: become(NOBODY), "report.ready": lambda: become(0)},
        )
    finally:
        become(0)
    assert reason.startswith("runtime_config: can't make the attempt's directory")
    assert "PERAGO_WORKSPACE_ROOT" in reason


def test_a_workspace_root_that_is_a_file_is_told_the_same_way(bench):
    bench.attempts.write_text("not a directory")
    step = declare()
    bench.start(step)
    outcome = bench.attempt(step)
    assert str(bench.attempts) in outcome.report.reason
    assert "PERAGO_WORKSPACE_ROOT" in outcome.report.reason


def test_a_second_run_on_a_busy_branch_is_refused_and_names_the_first(bench):
    first = bench.start(declare())
    with pytest.raises(BranchBusyError) as busy:
        bench.start(declare())
    assert first in busy.value.message
    assert busy.value.fix


def test_two_runners_on_one_store_share_the_work_and_lose_none_of_it(bench):
    def count(workspace, _params):
        (workspace / "a").write_text("2")
        return Total()

    step = declare(count)
    bench.start(step)
    store = EmbeddedStore(bench.root / "store", clock=bench.clock, durable=False)
    queue = EmbeddedQueue(bench.root / "queue.db", clock=bench.clock, durable=False)
    deliveries = [
        delivery
        for runner in (queue, bench.queue)
        for delivery in runner.poll([step.name], worker_id=str(id(runner)))
    ]
    outcomes = [
        run_attempt(delivery, step, bench.runtime(store=store, orchestrator=queue))
        for delivery in deliveries
    ]
    store.close()
    queue.close()
    assert [outcome.accepted for outcome in outcomes] == [True]
    assert bench.read() == {"a": b"2"}


@pytest.mark.parametrize("damage", ["other bytes", "fewer bytes", "no file"])
def test_a_corrupted_object_is_named_and_never_published(bench, refused, damage):
    bench.write({"songs/rotten": "these bytes will rot"})
    (entry,) = bench.store.list_objects("bench", "main", prefix="songs/rotten")
    file = bench.root / "store/objects" / entry.checksum[:2] / entry.checksum[2:]
    content = file.read_bytes()
    file.unlink()
    if damage != "no file":
        file.write_bytes(content[::-1] if damage == "other bytes" else content[:-1])
    reason = refused(declare(write_much))
    assert reason.startswith("corrupt_object: ")
    assert "'songs/rotten'" in reason
    assert entry.checksum in reason
