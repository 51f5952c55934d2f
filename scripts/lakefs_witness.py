"""lakeFS seen without Perago: what a repository holds, and what another client does to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lakefs_sdk import Configuration
from lakefs_sdk.client import LakeFSClient
from lakefs_sdk.exceptions import ApiException, NotFoundException
from lakefs_sdk.models import BranchCreation, BranchProtectionRule, CommitCreation

if TYPE_CHECKING:
    from perago.adapters.lakefs.client import LakeFSConfig

PATIENCE_SECONDS = 60.0


class Skipped(Exception):
    """Something can't be tried on this server or in this repository."""


class Witness:
    """One repository through lakeFS's own client: what is there, and what another client does."""

    def __init__(self, config: LakeFSConfig, repository: str) -> None:
        settings = Configuration(
            host=config.api_url, username=config.access_key_id, password=config.secret_access_key
        )
        settings.ssl_ca_cert = str(config.ca_file) if config.ca_file else None
        settings.proxy = config.proxy
        self.client = LakeFSClient(settings)
        self.repository = repository

    def close(self) -> None:
        self.client.branches_api.api_client.rest_client.pool_manager.clear()

    @property
    def version(self) -> str:
        return str(self.client.config_api.get_config().version_config.version)

    def default_branch(self) -> str:
        return str(self.client.repositories_api.get_repository(self.repository).default_branch)

    def head(self, branch: str) -> str:
        return str(self.client.branches_api.get_branch(self.repository, branch).commit_id)

    def commit(self, ref: str) -> Any:
        return self.client.commits_api.get_commit(self.repository, ref)

    def log(self, branch: str, amount: int = 10) -> list[str]:
        found = self.client.refs_api.log_commits(self.repository, branch, amount=amount)
        return [commit.id for commit in found.results]

    def files(self, ref: str, prefix: str) -> dict[str, bytes]:
        api = self.client.objects_api
        listed = api.list_objects(self.repository, ref, prefix=f"{prefix}/", amount=1000).results
        return {
            one.path.removeprefix(f"{prefix}/"): bytes(
                api.get_object(self.repository, ref, one.path)
            )
            for one in listed
        }

    def branches(self, prefix: str) -> list[str]:
        """Hidden ones too; none, if there is no repository."""
        try:
            found = self.client.branches_api.list_branches(
                self.repository, prefix=prefix, show_hidden=True, amount=1000
            )
        except NotFoundException:
            return []
        return [branch.id for branch in found.results]

    def delete_repository(self) -> None:
        with suppress(NotFoundException):
            self.client.repositories_api.delete_repository(self.repository, force=True)

    def create_branch(self, branch: str, at: str) -> None:
        self.client.branches_api.create_branch(
            self.repository, BranchCreation(name=branch, source=at)
        )

    def put(self, branch: str, key: str, content: bytes) -> None:
        self.client.objects_api.upload_object(self.repository, branch, key, content=content)

    def write(self, branch: str, objects: Mapping[str, bytes]) -> str:
        """Commit objects, as another client; returns the new head."""
        for key, content in objects.items():
            self.put(branch, key, content)
        made = self.client.commits_api.commit(
            self.repository, branch, CommitCreation(message="another client writes")
        )
        return str(made.id)

    def delete_branch(self, branch: str) -> None:
        """Also one whose protection was only just lifted: the server goes on believing in it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.client.branches_api.delete_branch(self.repository, branch)
            except NotFoundException:
                return
            except ApiException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    @contextmanager
    def protection(self, branch: str) -> Iterator[None]:
        """Protect a branch, and wait until the server acts on it."""
        api = self.client.repositories_api
        before = api.get_branch_protection_rules(self.repository)
        rule = BranchProtectionRule(pattern=branch)
        api.set_branch_protection_rules(self.repository, [*before, rule])
        try:
            self._wait_until_protected(branch)
            yield
        finally:
            api.set_branch_protection_rules(self.repository, before)

    def _wait_until_protected(self, branch: str) -> None:
        deadline, key = time.monotonic() + PATIENCE_SECONDS, "is-it-protected"
        while time.monotonic() < deadline:
            try:
                self.put(branch, key, b"")
            except ApiException:
                return
            self.client.objects_api.delete_object(self.repository, branch, key)
            time.sleep(0.5)
        raise Skipped(f"the server didn't protect the branch within {PATIENCE_SECONDS:.0f} s")
