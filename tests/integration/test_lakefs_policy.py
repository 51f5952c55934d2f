"""The policy in docs/how-to/secure-lakefs.md is enough for a worker, and none of it is too much.

The server checks every request against it; see auth_service.py for where it gets it from.
"""

import json
import re
import uuid
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.store import LakeFSStore
from perago.doctor.lakefs_trial import Trial
from perago.errors import StoreAccessError
from perago.model.attempt import TaskStatus
from perago.model.workspace import Signature, Upload
from perago.operations.fence_install import install_fence
from perago.testing import Bench

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "secure-lakefs.md"
BRANCH = "main"


def documented(name, repository):
    """The statements of a policy on the page, for this repository."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```json {name}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return json.loads(block.replace("repository/songs", f"repository/{repository}"))["statement"]


def without(statements, action, below):
    """The same policy, but for one action on one kind of thing."""
    left = []
    for statement in statements:
        actions = list(statement["action"])
        if statement["effect"] == "allow" and statement["resource"].endswith(below):
            actions.remove(action)
        left += [statement | {"action": actions}] if actions else []
    assert left != statements
    return left


class Nothing(BaseModel):
    pass


@task(
    name="policy.edit",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(count=0)),
)
def edit(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "edit").write_text("after")
    (workspace / "drop").unlink()
    return params


@task(name="policy.look", owner_email="data@example.com", workspace=WorkspaceSpec())
def look(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "edit").read_text()
    return params


class Repository:
    """A repository with one commit, ``A``; the admin's view of it, and the worker's attempts."""

    def __init__(self, policed, directory):
        self.name = f"policy-{uuid.uuid4().hex[:12]}"
        self.endpoint = policed.server.endpoint
        self.admin, self.worker = (
            LakeFSStore(
                LakeFSConfig(
                    policed.server.endpoint,
                    user.access_key_id,
                    user.secret_access_key,
                    storage_namespace=policed.server.storage_namespace,
                )
            )
            for user in (policed.admin, policed.worker)
        )
        self.user = policed.worker
        self._directory = directory
        self._bench = Bench(directory / "bench", repository=self.name)
        self.admin.create_repository(self.name)
        self.A = self.write("edit", "drop")
        self.allow(documented("worker", self.name))

    def allow(self, statements):
        self.user.statements = statements

    def write(self, *keys):
        """Commit files on the branch, as somebody outside would; the new head's id."""
        uploads = []
        for key in keys:
            path = self._directory / uuid.uuid4().hex
            path.write_text(f"{key} {uuid.uuid4()}")
            uploads.append(Upload(key, path, Signature.of(path.stat())))
        self.admin.upload(self.name, BRANCH, uploads)
        return self.admin.commit(self.name, BRANCH, message="outside", metadata={}).id

    def fence(self):
        self.A = install_fence(self.admin, self.name, BRANCH).head.id

    def attempt(self, step, *, level):
        self._bench.start(step, ref=self.A)
        outcome = self._bench.attempt(step, self._bench.runtime(store=self.worker, fence=level))
        if outcome.published is not None:
            assert outcome.published.level == level
        return outcome

    @property
    def head(self):
        return self.admin.head(self.name, BRANCH)

    def keys(self, ref):
        return [entry.key for entry in self.admin.list_objects(self.name, ref)]

    def branches(self):
        return [branch.name for branch in self.admin.branches(self.name)]

    def close(self):
        self._bench.close()
        for store in (self.admin, self.worker):
            store.close()


@pytest.fixture
def repository(policed, tmp_path):
    made = Repository(policed, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["soft", "cas"])
def level(request, repository):
    if request.param == "cas":
        repository.fence()
    return request.param


# --- it is enough ---------------------------------------------------------------------------------


def test_a_worker_with_it_publishes(repository, level):
    outcome = repository.attempt(edit, level=level)
    assert outcome.report.completed, outcome.report.reason
    assert outcome.published.ref == repository.head.id
    assert repository.head.is_only_child_of(repository.A)
    assert "drop" not in repository.keys(BRANCH)
    assert repository.branches() == [BRANCH]


def test_a_worker_with_it_replaces_an_abandoned_commit(repository, level):
    abandoned = repository.write("abandoned")
    outcome = repository.attempt(edit, level=level)
    assert outcome.report.completed, outcome.report.reason
    assert repository.head.is_only_child_of(repository.A)
    assert repository.head.id != abandoned
    assert "abandoned" not in repository.keys(BRANCH)
    assert repository.branches() == [BRANCH]


def test_a_worker_with_it_takes_the_branch_back_where_nothing_changed(repository, level):
    repository.write("abandoned")
    outcome = repository.attempt(look, level=level)
    assert outcome.report.completed, outcome.report.reason
    assert repository.head.id == repository.A
    assert repository.branches() == [BRANCH]


def test_a_worker_with_it_passes_the_doctors_trial(repository):
    trial = Trial(repository.worker, repository.name, BRANCH, repository.head)
    findings = trial.run()
    assert {finding.verdict for finding in findings} == {"ok"}, findings
    assert repository.branches() == [BRANCH]
    assert repository.head.id == repository.A


# --- and none of it is too much -------------------------------------------------------------------

STAGING, TARGET, OBJECTS = "branch/perago-staging-*", "branch/main", "object/*"
NEEDED = [
    # what is taken away, on what, and what the error then says
    ("fs:ReadCommit", "", "fs:ReadCommit"),
    ("fs:ListObjects", "", "fs:ListObjects"),
    ("fs:ReadObject", OBJECTS, "downloading 'drop'"),
    ("fs:WriteObject", OBJECTS, "uploading 'edit' to branch"),
    ("fs:DeleteObject", OBJECTS, "fs:DeleteObject"),
    ("fs:CreateBranch", STAGING, "fs:CreateBranch"),
    ("fs:CreateCommit", STAGING, "fs:CreateCommit"),
    ("fs:ReadBranch", TARGET, "fs:ReadBranch"),
    ("fs:CreateCommit", TARGET, "merging"),
]


@pytest.mark.parametrize(("action", "below", "named"), NEEDED)
def test_without_one_permission_the_error_names_it_and_nothing_is_published(
    repository, level, action, below, named
):
    policy = documented("worker", repository.name)
    repository.allow(without(policy, action, below or repository.name))
    outcome = repository.attempt(edit, level=level)
    assert outcome.report.status is TaskStatus.FAILED
    assert "workspace" not in outcome.report.output
    assert named in outcome.report.reason
    assert repository.head.id == repository.A
    assert repository.branches() == [BRANCH]


@pytest.mark.parametrize("step", [edit, look])
def test_without_reset_an_abandoned_commit_stays_and_the_error_names_it(repository, level, step):
    abandoned = repository.write("abandoned")
    policy = documented("worker", repository.name)
    repository.allow(without(policy, "fs:RevertBranch", TARGET))
    outcome = repository.attempt(step, level=level)
    assert outcome.report.status is TaskStatus.FAILED
    assert "fs:RevertBranch" in outcome.report.reason
    assert repository.head.id == abandoned
    assert repository.branches() == [BRANCH]


def test_without_branch_removal_the_result_stands(repository, level):
    policy = documented("worker", repository.name)
    repository.allow(without(policy, "fs:DeleteBranch", STAGING))
    outcome = repository.attempt(edit, level=level)
    assert outcome.report.completed, outcome.report.reason
    assert outcome.published.ref == repository.head.id
    assert len(repository.branches()) > 1


@pytest.mark.parametrize(
    ("action", "below", "step"),
    [
        ("fs:CreateBranch", STAGING, "branch creation"),
        ("fs:WriteObject", OBJECTS, "upload"),
        ("fs:DeleteObject", OBJECTS, "object removal"),
        ("fs:CreateCommit", STAGING, "commit"),
        ("fs:ReadObject", OBJECTS, "download"),
        ("fs:CreateCommit", TARGET, "merge into the branch"),
        ("fs:RevertBranch", STAGING, "reset"),
        ("fs:RevertBranch", TARGET, "reset of the branch"),
        ("fs:DeleteBranch", STAGING, "branch removal"),
    ],
)
def test_the_doctors_trial_names_each_missing_permission(repository, action, below, step):
    repository.allow(without(documented("worker", repository.name), action, below))
    findings = Trial(repository.worker, repository.name, BRANCH, repository.head).run()
    (failed,) = [finding for finding in findings if finding.verdict == "fail"]
    assert failed.name == step
    assert failed.fix.startswith(f"allow {action} on arn:lakefs:fs:::repository/{repository.name}")
    assert below in failed.fix
    assert repository.head.id == repository.A


def test_the_server_itself_keeps_a_worker_from_the_fence(repository, tmp_path):
    repository.fence()
    path = tmp_path / "action.yaml"
    path.write_text("name: mine\n")
    upload = Upload("_lakefs_actions/perago_fence.yaml", path, Signature.of(path.stat()))
    staging = "perago-staging-mine"
    repository.worker.create_branch(repository.name, staging, repository.A)
    with pytest.raises(StoreAccessError):
        repository.worker.upload(repository.name, staging, [upload])


# --- what people need in addition -----------------------------------------------------------------


def test_who_installs_the_fence_needs_the_policy_without_its_last_statement(repository):
    repository.allow(documented("worker", repository.name)[:-1])
    installed = install_fence(repository.worker, repository.name, BRANCH)
    assert installed.commit is not None
    assert repository.worker.atomicity(repository.name, installed.head.id).cas_merge


@pytest.fixture
def as_person(repository, perago, monkeypatch):
    """Type a command as the worker's user."""
    user = repository.user
    monkeypatch.setenv("PERAGO_STORE", "lakefs")
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", repository.endpoint)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", user.access_key_id)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", user.secret_access_key)
    return perago


def test_who_imports_needs_nothing_more(repository, as_person):
    assert as_person("import", "data", "-r", repository.name).code == 0
    assert repository.head.is_only_child_of(repository.A)


@pytest.mark.parametrize(
    "command",
    [
        ("history", "main", "-r", "{0}"),
        ("diff", "{1}", "main", "-r", "{0}"),
        ("export", "main", "out", "-r", "{0}"),
        ("gc",),
        ("run", "songs_tasks:songs", "--repository", "{0}", "--branch", "mine"),
    ],
    ids=lambda command: command[0],
)
def test_other_commands_need_the_second_policy_and_say_so(repository, as_person, command):
    line = [word.format(repository.name, repository.A) for word in command]
    assert as_person("import", "data", "-r", repository.name).code == 0
    refused = as_person(*line)
    assert refused.code == 4, refused.out + refused.err
    assert "insufficient permissions" in refused.err
    both = [s for kind in ("worker", "operator") for s in documented(kind, repository.name)]
    repository.allow(both)
    allowed = as_person(*line)
    assert allowed.code == 0, allowed.out + allowed.err


def test_who_creates_repositories_and_branches_needs_the_second_policy(repository):
    other = f"policy-{uuid.uuid4().hex[:12]}"
    with pytest.raises(StoreAccessError, match="fs:CreateRepository"):
        repository.worker.create_repository(other)
    repository.allow([s for kind in ("worker", "operator") for s in documented(kind, other)])
    root = repository.worker.create_repository(other)
    repository.worker.create_branch(other, "mine", root.id)
    assert other in repository.worker.repositories()
    assert [branch.name for branch in repository.worker.branches(other)] == ["main", "mine"]
