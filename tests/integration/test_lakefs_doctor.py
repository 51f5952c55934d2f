"""``perago doctor --on lakefs`` tells broken set-ups apart, as its page in the docs says.

docs/how-to/troubleshoot-lakefs.md is where the expectations stand: each row of its table has a
set-up here, and the doctor has to say what the row says. ``pytest -rP`` shows it side by side.
"""

import os
import re
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.http_servers import ForwardProxy
from support.wire import FaultyWire, answer, set_header

from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.adapters.lakefs.store import LakeFSStore
from perago.model.workspace import Signature, Upload
from perago.operations.fence_install import install_fence
from perago.stack.test_server import start_lakefs

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot-lakefs.md"
SET_UPS = {}


def documented():
    """What the page says of each set-up: the check, its words and the fix."""
    rows = re.findall(
        r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return {
        wrong: SimpleNamespace(check=check, says=says, fix=fix)
        for wrong, check, says, fix in rows
        if not wrong.startswith(("-", "what is wrong"))
    }


def set_up(wrong):
    """Registers a function that breaks the world in this way; what it returns is --repository."""

    def register(function):
        SET_UPS[wrong] = function
        return function

    return register


class World:
    """Servers to be spoilt, and the environment by which ``perago`` finds them."""

    def __init__(self, request, monkeypatch, directory):
        self._request = request
        self._directory = directory
        self.setenv = monkeypatch.setenv
        self.delenv = monkeypatch.delenv
        self._opened = []

    def fixture(self, name):
        return self._request.getfixturevalue(name)

    def use(self, server, *, endpoint=None, user=None):
        self.setenv("LAKECTL_SERVER_ENDPOINT_URL", endpoint or server.endpoint)
        known = user or server
        self.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", known.access_key_id)
        self.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", known.secret_access_key)

    def use_good(self):
        self.use(self.fixture("lakefs_server"))
        return self.fixture("lakefs_server")

    def during(self, manager):
        """Enter it until the test ends."""
        self._opened.append(manager)
        return manager.__enter__()

    def store(self, server, user=None):
        known = user or server
        access = LakeFSConfig(
            server.endpoint,
            known.access_key_id,
            known.secret_access_key,
            storage_namespace=server.storage_namespace,
        )
        store = LakeFSStore(access)
        self._opened.append(SimpleNamespace(__exit__=lambda *_: store.close()))
        return store

    def repository(self, store):
        name = f"doctor-{uuid.uuid4().hex[:12]}"
        store.create_repository(name)
        return name

    def put(self, store, repository, key, content=b"bytes", *, branch="main"):
        path = self._directory / uuid.uuid4().hex
        path.write_bytes(content)
        store.upload(repository, branch, [Upload(key, path, Signature.of(path.stat()))])

    def close(self):
        for manager in reversed(self._opened):
            manager.__exit__(None, None, None)


@pytest.fixture
def world(project, request, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    made = World(request, monkeypatch, project)
    yield made
    made.close()


@pytest.fixture(scope="session")
def actionless_server(lakefs_binaries, tmp_path_factory):
    config = {"actions": {"enabled": False}}
    with start_lakefs(tmp_path_factory.mktemp("actionless"), config=config) as server:
        yield server


# --- the settings and the way there ---------------------------------------------------------------


@set_up("nothing is set")
def nothing_is_set(world):
    return "songs"


@set_up("a file is where the cache should be")
def no_cache(world):
    world.use_good()
    Path("in-the-way").write_text("a file")
    world.setenv("PERAGO_CACHE", "in-the-way/cache")


@set_up("nothing listens at the address")
def nobody_there(world):
    world.use(world.fixture("lakefs_server"), endpoint="http://127.0.0.1:9")


@set_up("the host's name is misspelt")
def no_such_host(world):
    world.use(world.fixture("lakefs_server"), endpoint="http://lakefs.invalid:8000")


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>It works!</html>")

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def another_program():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@set_up("another program has that port")
def something_else(world):
    endpoint = world.during(another_program())
    world.use(world.fixture("lakefs_server"), endpoint=endpoint)


@set_up("`http://` for a server with TLS")
def http_to_tls(world):
    server = world.fixture("tls_server")
    world.use(server, endpoint=server.endpoint.replace("https:", "http:"))


@set_up("`https://` for a server without TLS")
def tls_to_http(world):
    server = world.fixture("lakefs_server")
    world.use(server, endpoint=server.endpoint.replace("http:", "https:"))


@set_up("a certificate of an unknown authority")
def untrusted(world):
    world.use(world.fixture("tls_server"))


@set_up("a certificate for another name")
def other_name(world):
    server = world.fixture("tls_server")
    world.use(server, endpoint=server.endpoint.replace("127.0.0.1", "localhost"))
    world.setenv("PERAGO_LAKEFS_CA_FILE", str(world.fixture("authority") / "ca.pem"))


def through_wire(world, fault, **when):
    server = world.fixture("lakefs_server")
    wire = world.during(FaultyWire(server.endpoint))
    wire.on(fault, times=None, **when)
    world.use(server, endpoint=wire.endpoint)


@set_up("the server has moved")
def moved(world):
    location = "https://lakefs.example/api/v1/config/version"
    through_wire(world, answer(308, headers={"Location": location}))


@set_up("a load balancer with nothing behind it")
def nothing_behind(world):
    through_wire(world, answer(503, b"no healthy upstream"))


@set_up("the proxy is down")
def no_proxy(world):
    world.use_good()
    world.setenv("HTTP_PROXY", "http://somebody:secret@127.0.0.1:9")


@set_up("a proxy of a kind that can't be used")
def unusable_proxy(world):
    world.use_good()
    world.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")


@contextmanager
def closed_proxy():
    with ForwardProxy(password="somebody:secret") as proxy:
        yield proxy.url


@set_up("a proxy that wants a password")
def proxy_with_password(world):
    world.use_good()
    world.setenv("HTTP_PROXY", world.during(closed_proxy()))


@set_up("the clocks differ by 20 minutes")
def other_time(world):
    through_wire(world, set_header("Date", formatdate(time.time() - 20 * 60, usegmt=True)))


@set_up("a wrong secret")
def wrong_secret(world):
    world.use_good()
    world.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "not-that-one")


@set_up("an old server")
def old_server(world):
    # The first request is the one without a key.
    through_wire(world, answer(200, b'{"version": "1.40.0"}'), path="/config/version", skip=1)


# --- the repository and the branch ----------------------------------------------------------------


@set_up("no such repository")
def no_repository(world):
    world.use_good()
    return "no-such-repository"


@set_up("no such branch")
def no_branch(world):
    return world.repository(world.store(world.use_good())), "no-such-branch"


@set_up("uncommitted objects on the branch")
def dirty(world):
    store = world.store(world.use_good())
    repository = world.repository(store)
    world.put(store, repository, "left-behind")
    return repository


@set_up("a protected branch")
def protected(world):
    from lakefs_sdk import Configuration
    from lakefs_sdk.client import LakeFSClient
    from lakefs_sdk.models import BranchProtectionRule

    server = world.use_good()
    repository = world.repository(world.store(server))
    client = LakeFSClient(
        Configuration(
            host=f"{server.endpoint}/api/v1",
            username=server.access_key_id,
            password=server.secret_access_key,
        )
    )
    client.repositories_api.set_branch_protection_rules(
        repository, [BranchProtectionRule(pattern="main")]
    )
    client.repositories_api.api_client.rest_client.pool_manager.clear()
    return repository


# --- permissions ----------------------------------------------------------------------------------


def lacking(action, below):
    """A set-up in which the worker may do everything but this."""

    def break_it(world):
        policed = world.fixture("policed")
        repository = world.repository(world.store(policed.server, policed.admin))
        resource = f"arn:lakefs:fs:::repository/{repository}/{below}"
        policed.worker.statements = [
            {"effect": "allow", "action": ["fs:*"], "resource": "*"},
            {"effect": "deny", "action": [action], "resource": resource},
        ]
        world.use(policed.server, user=policed.worker)
        return repository

    return break_it


set_up("no permission to look at the branch")(lacking("fs:ReadBranch", "branch/main"))
set_up("no permission to create branches")(lacking("fs:CreateBranch", "branch/*"))
set_up("no permission to upload")(lacking("fs:WriteObject", "object/*"))
set_up("no permission to commit")(lacking("fs:CreateCommit", "branch/perago-staging-*"))
set_up("no permission to merge")(lacking("fs:CreateCommit", "branch/main"))
set_up("no permission to reset")(lacking("fs:RevertBranch", "branch/main"))
set_up("no permission to remove branches")(lacking("fs:DeleteBranch", "branch/*"))


# --- the fence ------------------------------------------------------------------------------------


@set_up("no fence, and `PERAGO_PUBLISH_FENCE=cas`")
def no_fence(world):
    world.setenv("PERAGO_PUBLISH_FENCE", "cas")
    return world.repository(world.store(world.use_good()))


@set_up("an older fence")
def older_fence(world):
    world.setenv("PERAGO_PUBLISH_FENCE", "cas")
    store = world.store(world.use_good())
    repository = world.repository(store)
    world.put(store, repository, FENCE_KEY, FENCE_ACTION + b"# older\n")
    store.commit(repository, "main", message="an older fence", metadata={})
    return repository


@set_up("a server that runs no actions")
def no_actions(world):
    world.setenv("PERAGO_PUBLISH_FENCE", "cas")
    server = world.fixture("actionless_server")
    world.use(server)
    store = world.store(server)
    repository = world.repository(store)
    install_fence(store, repository, "main")
    return repository


# --- the statements -------------------------------------------------------------------------------


def test_the_page_and_the_set_ups_are_about_the_same_things():
    assert set(documented()) == set(SET_UPS)


@pytest.mark.parametrize("wrong", SET_UPS)
def test_each_broken_set_up_has_a_diagnosis_of_its_own(perago, world, wrong):
    broken = SET_UPS[wrong](world) or ()
    names = (broken,) if isinstance(broken, str) else broken
    options = zip(("--repository", "--branch"), names, strict=False)
    said = perago(
        "doctor", "--on", "lakefs", *[word for pair in options for word in pair], "--json"
    )
    assert said.code == 1, said.out + said.err
    failed = [check for check in said.json["checks"] if check["verdict"] == "fail"]
    for one in failed:
        print(f"{wrong}\n  {one['name']}: {one['detail']}\n  fix: {one['fix']}")  # noqa: T201
    expected = documented()[wrong]
    ours = next(check for check in failed if check["name"] == expected.check)
    assert expected.says in ours["detail"]
    assert expected.fix in ours["fix"]
    like_it = [
        other
        for other, row in documented().items()
        if any(
            row.check == one["name"] and row.says in one["detail"] and row.fix in one["fix"]
            for one in failed
        )
    ]
    assert like_it == [wrong]
    assert os.environ.get("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "none set") not in said.out


def test_a_sound_set_up_is_found_sound_and_left_as_it_was(perago, world):
    store = world.store(world.use_good())
    repository = world.repository(store)
    head = install_fence(store, repository, "main").head
    said = perago("doctor", "--on", "lakefs", "--repository", repository, "--json")
    assert {check["verdict"] for check in said.json["checks"]} == {"ok"}, said.json["checks"]
    assert said.code == 0
    assert store.head(repository, "main") == head
    assert [branch.name for branch in store.branches(repository)] == ["main"]


def test_without_a_repository_it_ends_at_the_server(perago, world):
    world.repository(world.store(world.use_good()))
    said = perago("doctor", "--on", "lakefs")
    assert said.code == 0
    assert "--repository NAME" in said.out


@pytest.mark.usefixtures("hasty")
def test_a_server_that_fails_half_way_is_a_finding_too(perago, world):
    through_wire(world, answer(500, b'{"message": "out of order"}'), path="/repositories")
    for words in ((), ("--repository", "songs")):
        said = perago("doctor", "--on", "lakefs", *words, "--json")
        (failed,) = [check for check in said.json["checks"] if check["verdict"] == "fail"]
        assert (said.code, failed["name"]) == (1, "repository")
        assert "500" in failed["detail"] or "out of order" in failed["detail"]


def test_a_client_with_parts_missing_is_a_finding_too(perago, project, world, monkeypatch):
    world.repository(world.store(world.use_good()))
    (project / "lakefs_sdk.py").write_text("")
    monkeypatch.delitem(sys.modules, "lakefs_sdk")
    monkeypatch.syspath_prepend(project)
    said = perago("doctor", "--on", "lakefs", "--json")
    (failed,) = [check for check in said.json["checks"] if check["verdict"] == "fail"]
    assert (said.code, failed["name"]) == (1, "lakeFS")
    assert failed["fix"] == "pip install 'perago-runtime[lakefs]'"


def test_a_missing_fence_is_a_warning_unless_it_is_demanded(perago, world):
    repository = world.repository(world.store(world.use_good()))
    said = perago("doctor", "--on", "lakefs", "--repository", repository, "--json")
    (fence,) = [check for check in said.json["checks"] if check["name"] == "fence"]
    assert (said.code, fence["verdict"]) == (0, "warn")


def test_a_proxy_in_use_is_named_without_its_password(perago, world):
    world.use_good()
    world.setenv("HTTP_PROXY", "http://somebody:hidden@127.0.0.1:9")
    said = perago("doctor", "--on", "lakefs", "--json")
    (proxy,) = [check for check in said.json["checks"] if check["name"] == "proxy"]
    assert proxy["detail"] == "http://127.0.0.1:9, from the environment"
    assert "hidden" not in said.out + said.err


def test_settings_name_their_source_and_keep_the_secret(perago, project, world):
    server = world.fixture("lakefs_server")
    stack = project / ".perago" / "stack"
    stack.mkdir(parents=True)
    lines = "".join(f"{name}={value}\n" for name, value in server.settings.items())
    (stack / "settings.env").write_text(lines)
    said = perago("doctor", "--on", "lakefs", "--json")
    shown = {one["name"]: (one["value"], one["source"]) for one in said.json["settings"]}
    assert shown["PERAGO_STORE"] == ("lakefs", "command line")
    assert shown["LAKECTL_SERVER_ENDPOINT_URL"] == (server.endpoint, "stack")
    assert shown["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"] == ("**********", "stack")
    assert shown["PERAGO_LAKEFS_CA_FILE"] == ("", "default")
    assert server.secret_access_key not in said.out + said.err
