"""Tests against real servers on loopback: each test process starts its own, but for Conductor."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from support.conductor import ADDRESS_VARIABLE, ConductorBench, shared_conductor
from support.http_servers import EVERYTHING, AuthService, User
from support.worker import WorkerRig

from perago.adapters.lakefs import client
from perago.stack import conductor, lakefs, spark_connect
from perago.stack.test_server import start_lakefs, start_spark_cluster, start_spark_connect


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def lakefs_binaries():
    """The programs of lakeFS. Who has none can't run these tests, and CI has to."""
    if not lakefs.is_cached():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "lakeFS isn't on this machine: `make servers` gets it"
        )
    return lakefs.ensure_lakefs(print)


@pytest.fixture(scope="session")
def lakefs_server(lakefs_binaries, tmp_path_factory):
    """One server for all tests of this process that leave it as it is: endpoint and credentials."""
    with start_lakefs(tmp_path_factory.mktemp("lakefs")) as server:
        yield server


@pytest.fixture(scope="module", params=["embedded", "lakeFS"])
def spark_driver(request, tmp_path_factory):
    """A Spark for one kind of store, and that lakeFS if it is one. A process has one at a time."""
    from support.spark import engines_for, settings_for

    server = request.getfixturevalue("lakefs_server") if request.param == "lakeFS" else None
    home = tmp_path_factory.mktemp("spark") / "a home 100%"
    with engines_for(settings_for(home, server)) as engines:
        yield engines, server


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory):
    """A master with two workers, for all tests of this process: ``address`` is SPARK_MASTER."""
    with start_spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server(lakefs_server, tmp_path_factory):
    """A Spark Connect server on that lakeFS, for all tests of this process."""
    login = spark_connect.login_from(lakefs_server.settings)
    with start_spark_connect(tmp_path_factory.mktemp("connect"), login=login) as server:
        yield server


@pytest.fixture(scope="session")
def _mortal_server(lakefs_binaries, tmp_path_factory):
    with start_lakefs(tmp_path_factory.mktemp("mortal")) as server:
        yield server


@pytest.fixture
def mortal_server(_mortal_server):
    """One that a test may kill, restart or fill the disk of."""
    if not _mortal_server.is_running:
        _mortal_server.restart()
    return _mortal_server


@pytest.fixture
def hasty(monkeypatch):
    """Retries wait milliseconds: the server won't come back before the attempt has ended."""
    for name in ("READ_BACKOFF", "TRANSFER_BACKOFF"):
        quick = replace(getattr(client, name), first=0.01, longest=0.01)
        monkeypatch.setattr(client, name, quick)


@pytest.fixture(scope="session")
def policed(lakefs_binaries, tmp_path_factory):
    """A server that enforces policies, its admin, and a worker whose policy a test sets."""
    admin = User("admin", "ADMINADMINADMINADMIN", "the-secret-of-the-admin", [EVERYTHING])
    worker = User("worker", "WORKERWORKERWORKERWO", "the-secret-of-the-worker")
    with (
        AuthService(admin, worker) as service,
        start_lakefs(tmp_path_factory.mktemp("policed"), config=service.config) as server,
    ):
        yield SimpleNamespace(server=server, admin=admin, worker=worker)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A certificate authority that no machine knows: ca.pem; cert.pem and key.pem of 127.0.0.1."""
    directory = tmp_path_factory.mktemp("authority")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    server.private_key_pem.write_to_path(directory / "key.pem")
    (directory / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in server.cert_chain_pems))
    return directory


@pytest.fixture(scope="session")
def tls_server(lakefs_binaries, authority, tmp_path_factory):
    """A server that speaks TLS, with that authority's certificate."""
    tls = {"enabled": True, "cert_file": str(authority / "cert.pem")}
    config = {"tls": tls | {"key_file": str(authority / "key.pem")}}
    with start_lakefs(tmp_path_factory.mktemp("tls"), config=config) as server:
        yield server


@pytest.fixture(scope="session")
def conductor_program():
    """Conductor and a Java for it. Who has none can't run these tests, and CI has to."""
    if not conductor.is_cached():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "Conductor isn't on this machine: `make servers` gets it"
        )
    return conductor.ensure_conductor(print)


@pytest.fixture(scope="session")
def conductor_server(request, common_directory):
    """The address of a server's API, which all tests share that leave it as it is."""
    if already_up := os.environ.get(ADDRESS_VARIABLE):
        yield already_up
        return
    request.getfixturevalue("conductor_program")
    with shared_conductor(common_directory / "conductor") as address:
        yield address


@pytest.fixture
def conductor_bench(conductor_server):
    bench = ConductorBench(conductor_server)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def places(conductor_server, lakefs_server):
    """Makes places on the shared servers, each in a directory, for as long as a block lasts."""
    return lambda directory: closing(WorkerRig(directory, conductor_server, lakefs_server))


@pytest.fixture
def place(places, tmp_path):
    """A repository, and workers on the shared servers; nothing of them is left afterwards."""
    with places(tmp_path) as opened:
        yield opened
