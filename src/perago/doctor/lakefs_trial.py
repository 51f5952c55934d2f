"""Tries on a repository what a worker does in an attempt, on two hidden branches.

No list of permissions says as much as the requests themselves, which policies, hooks and gateways
may refuse. The branch to publish to is not changed: it gets a merge and a reset with a commit that
doesn't exist, which lakeFS refuses by permission or protection before it looks for the commit.
"""

from __future__ import annotations

import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.lakefs.fence import NO_COMMIT
from perago.doctor.finding import Finding
from perago.errors import CommitNotFoundError, StoreAccessError, StoreError
from perago.model.attempt import STAGING_PREFIX, new_execution_id
from perago.model.commit import EXPECTED_HEAD_KEY
from perago.model.workspace import Download, Signature, Upload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.adapters.lakefs.store import LakeFSStore
    from perago.model.commit import Commit


_MESSAGE = "perago doctor: a trial on hidden branches"
_NEEDS = {
    "branch creation": ("fs:CreateBranch", f"branch/{STAGING_PREFIX}*"),
    "upload": ("fs:WriteObject", "object/*"),
    "object removal": ("fs:DeleteObject", "object/*"),
    "commit": ("fs:CreateCommit", f"branch/{STAGING_PREFIX}*"),
    "download": ("fs:ReadObject", "object/*"),
    "merge": ("fs:CreateCommit", f"branch/{STAGING_PREFIX}*"),
    "merge into the branch": ("fs:CreateCommit", "branch/{branch}"),
    "reset": ("fs:RevertBranch", f"branch/{STAGING_PREFIX}*"),
    "reset of the branch": ("fs:RevertBranch", "branch/{branch}"),
    "branch removal": ("fs:DeleteBranch", f"branch/{STAGING_PREFIX}*"),
}
"""The permission that each step needs, and the resource below the repository."""


class Trial:
    """One trial of a repository, as a worker uses it that publishes to ``branch``."""

    def __init__(self, store: LakeFSStore, repository: str, branch: str, head: Commit) -> None:
        self._store = store
        self._repository = repository
        self._branch = branch
        self._head = head
        self._staging, self._target = (
            f"{STAGING_PREFIX}doctor-exec-{new_execution_id()}" for _ in range(2)
        )
        self._key = f"perago-doctor-{secrets.token_hex(8)}"
        self._is_staged = False

    def run(self) -> list[Finding]:
        """Try each step; one finding for each that was tried. Removes what it made."""
        with tempfile.TemporaryDirectory(prefix="perago-doctor-") as directory:
            try:
                found = list(self._steps(Path(directory)))
            finally:
                removal = self._step("branch removal", self._remove_branches)
        # If no branch could be created, there was none to remove.
        return found if found[0].failed else [*found, removal]

    def _steps(self, scratch: Path) -> Iterator[Finding]:
        created = self._step("branch creation", self._create_branches)
        yield created
        if created.failed:
            return
        for name, action in (
            ("upload", lambda: self._upload(scratch)),
            ("object removal", self._remove_object),
            ("commit", self._commit),
            ("download", lambda: self._download(scratch)),
        ):
            finding = self._step(name, action)
            yield finding
            if finding.failed:
                break
        if self._is_staged:
            yield self._step("merge", self._merge)
        yield self._step("merge into the branch", self._request_merge, success="allowed")
        yield self._step("reset", self._reset)
        yield self._step("reset of the branch", self._request_reset, success="allowed")

    def _step(self, name: str, action: Callable[[], None], *, success: str = "works") -> Finding:
        try:
            action()
        except StoreAccessError as error:
            return self._refused(name, error)
        except StoreError as error:
            return Finding.of_error(name, error, "see the log of lakeFS")
        return Finding(name, "ok", success)

    def _refused(self, name: str, error: StoreAccessError) -> Finding:
        if "SignatureDoesNotMatch" in error.message:  # for a key that the API has just accepted
            fix = "configure the proxy in front of lakeFS to pass the Host header unchanged"
            detail = f"{error.message}: a proxy changed the request"
            return Finding(name, "fail", detail, fix)
        permission, below = _NEEDS[name]
        below = below.format(branch=self._branch)
        resource = f"arn:lakefs:fs:::repository/{self._repository}/{below}"
        fix = f"allow {permission} on {resource} (docs/how-to/secure-lakefs.md has the policy)"
        return Finding(name, "fail", f"{permission} is missing: {error.message}", fix)

    # The steps, in the order of an attempt.

    def _create_branches(self) -> None:
        for name in (self._staging, self._target):
            self._store.create_branch(self._repository, name, self._head.id, hidden=True)

    def _upload(self, directory: Path) -> None:
        uploads = []
        for key in (self._key, f"{self._key}-removed"):
            path = directory / key
            path.write_text(key, encoding="utf-8")
            uploads.append(Upload(key, path, Signature.of(path.stat())))
        self._store.upload(self._repository, self._staging, uploads)

    def _remove_object(self) -> None:
        self._store.delete_objects(self._repository, self._staging, [f"{self._key}-removed"])

    def _commit(self) -> None:
        self._store.commit(self._repository, self._staging, message=_MESSAGE, metadata={})
        self._is_staged = True

    def _download(self, directory: Path) -> None:
        (entry,) = self._store.list_objects(self._repository, self._staging, prefix=self._key)
        self._store.download(self._repository, self._staging, [Download(entry, directory / "back")])

    def _merge(self) -> None:
        self._store.merge(
            self._repository,
            self._staging,
            self._target,
            expected_head=None,
            message=_MESSAGE,
            metadata={EXPECTED_HEAD_KEY: self._head.id},
        )

    def _request_merge(self) -> None:
        # The commit doesn't exist, so the merge can't happen.
        with suppress(CommitNotFoundError):
            self._store.merge(
                self._repository,
                NO_COMMIT,
                self._branch,
                expected_head=None,
                message=_MESSAGE,
                metadata={},
            )

    def _reset(self) -> None:
        self._store.relocate(self._repository, self._target, self._head.id, expected_head=None)

    def _request_reset(self) -> None:
        with suppress(CommitNotFoundError):
            self._store.relocate(self._repository, self._branch, NO_COMMIT, expected_head=None)

    def _remove_branches(self) -> None:
        for name in (self._staging, self._target):
            self._store.delete_branch(self._repository, name)
