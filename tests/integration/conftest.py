"""Tests against real servers: each test process starts its own, on loopback."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from auth_service import EVERYTHING, AuthService, User

from perago.stack import lakefs


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def lakefs_binaries():
    """The programs of lakeFS. Who has none can't run these tests, and CI has to."""
    if not lakefs.is_cached():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "lakeFS isn't on this machine: `make servers` gets it"
        )
    return lakefs.ensure_lakefs(print)


@pytest.fixture(scope="session")
def lakefs_server(lakefs_binaries, tmp_path_factory):
    """One server for all tests of this process that leave it as it is: endpoint and credentials."""
    with lakefs.start(tmp_path_factory.mktemp("lakefs")) as server:
        yield server


@pytest.fixture(scope="session")
def policed(lakefs_binaries, tmp_path_factory):
    """A server that enforces policies, its admin, and a worker whose policy a test sets."""
    admin = User("admin", "ADMINADMINADMINADMIN", "the-secret-of-the-admin", [EVERYTHING])
    worker = User("worker", "WORKERWORKERWORKERWO", "the-secret-of-the-worker")
    with (
        AuthService(admin, worker) as service,
        lakefs.start(tmp_path_factory.mktemp("policed"), config=service.config) as server,
    ):
        yield SimpleNamespace(server=server, admin=admin, worker=worker)
