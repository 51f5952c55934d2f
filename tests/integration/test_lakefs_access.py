"""Own certificates and proxies hold on both planes: the API, and the gateway that moves bytes."""

import uuid

import pytest
import trustme
from support.http_servers import ForwardProxy

from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.store import LakeFSStore
from perago.errors import StoreUnavailableError
from perago.model.workspace import Download, Signature, Upload

pytestmark = pytest.mark.usefixtures("hasty")

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch):
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def proxy():
    with ForwardProxy() as proxy:
        yield proxy


class Client:
    """A store, and something for it to do on either plane alone."""

    def __init__(self, server, directory, *, ca_file=None, repository=None):
        access = LakeFSConfig(
            server.endpoint,
            server.access_key_id,
            server.secret_access_key,
            ca_file=ca_file,
            storage_namespace=server.storage_namespace,
        )
        self.store = LakeFSStore(access)
        self.repository = repository or f"access-{uuid.uuid4().hex[:12]}"
        self._directory = directory

    def control(self):
        self.store.create_repository(self.repository)

    def upload(self):
        path = self._directory / "file"
        path.write_bytes(b"some bytes")
        upload = Upload("key", path, Signature.of(path.stat()))
        self.store.upload(self.repository, "main", [upload])

    def download(self):
        (entry,) = self.store.list_objects(self.repository, "main")
        self.store.download(self.repository, "main", [Download(entry, self._directory / "back")])
        return (self._directory / "back").read_bytes()


@pytest.fixture
def connect(tmp_path):
    """Makes clients, which end with the test."""
    made = []

    def make(server, **given):
        made.append(Client(server, tmp_path, **given))
        return made[-1]

    yield make
    for client in made:
        client.store.close()


# --- TLS ------------------------------------------------------------------------------------------


def test_a_server_with_a_certificate_of_our_own_authority_is_believed_on_both_planes(
    tls_server, authority, connect
):
    client = connect(tls_server, ca_file=authority / "ca.pem")
    client.control()
    client.upload()
    assert client.download() == b"some bytes"


def test_without_the_authority_neither_plane_talks_to_it_and_both_say_what_to_set(
    tls_server, authority, connect
):
    known = connect(tls_server, ca_file=authority / "ca.pem")
    known.control()
    for request in (Client.control, Client.upload):
        with pytest.raises(StoreUnavailableError, match="certificate") as refused:
            request(connect(tls_server, repository=known.repository))
        assert "PERAGO_LAKEFS_CA_FILE" in refused.value.fix


def test_another_authority_is_believed_on_neither_plane(tls_server, connect, tmp_path):
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    client = connect(tls_server, ca_file=stranger)
    with pytest.raises(StoreUnavailableError, match="certificate"):
        client.control()
    with pytest.raises(StoreUnavailableError, match="certificate"):
        client.upload()


def test_the_authorities_of_the_machine_are_believed_on_both_planes(
    tls_server, authority, connect, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    client = connect(tls_server)
    client.control()
    client.upload()


# --- proxies --------------------------------------------------------------------------------------


def test_http_goes_through_the_proxy_on_both_planes(lakefs_server, proxy, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    client = connect(lakefs_server)
    client.control()
    client.upload()
    assert client.download() == b"some bytes"
    here = lakefs_server.endpoint
    assert ("POST", f"{here}/api/v1/repositories") in proxy.seen
    assert ("PUT", f"{here}/{client.repository}/main/key") in proxy.seen
    assert ("GET", f"{here}/{client.repository}/main/key") in proxy.seen


def test_https_goes_through_a_tunnel_of_the_proxy_on_both_planes(
    tls_server, authority, proxy, connect, monkeypatch
):
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    tunnel = ("CONNECT", tls_server.endpoint.removeprefix("https://"))
    client = connect(tls_server, ca_file=authority / "ca.pem")
    client.control()
    assert proxy.seen == [tunnel]
    client.upload()
    assert proxy.seen == [tunnel, tunnel]


def test_a_proxys_password_is_told_to_it_on_both_planes(
    lakefs_server, tls_server, authority, connect, monkeypatch
):
    with ForwardProxy(password="somebody:p@ss word") as proxy:
        url = proxy.url.replace("http://", "http://somebody:p%40ss%20word@")
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.setenv("HTTPS_PROXY", url)
        for client in (connect(lakefs_server), connect(tls_server, ca_file=authority / "ca.pem")):
            proxy.seen.clear()
            client.control()
            seen = len(proxy.seen)
            assert seen > 0
            client.upload()
            assert len(proxy.seen) > seen


@pytest.mark.parametrize("exempt", ["127.0.0.1", "{netloc}", "*", "other.example,127.0.0.1"])
def test_a_host_in_no_proxy_is_reached_directly_on_both_planes(
    lakefs_server, proxy, connect, monkeypatch, exempt
):
    netloc = lakefs_server.endpoint.removeprefix("http://")
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", exempt.format(netloc=netloc))
    client = connect(lakefs_server)
    client.control()
    client.upload()
    assert client.download() == b"some bytes"
    assert proxy.seen == []


def test_without_its_proxy_neither_plane_gets_anywhere(lakefs_server, connect, monkeypatch):
    direct = connect(lakefs_server)
    direct.control()
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for request in (Client.control, Client.upload):
        with pytest.raises(StoreUnavailableError):
            request(connect(lakefs_server, repository=direct.repository))
