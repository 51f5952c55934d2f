"""``--on`` names servers, and those only: what the environment says of others doesn't count."""

import json
import os
from dataclasses import asdict

import pytest

from perago.cli.options import backend_of, backends_from, settings_for
from perago.errors import RuntimeConfigError
from perago.settings import STACK_SETTINGS
from perago.stack.processes import process_of
from perago.stack.stack import KINDS

STACK = """\
LAKECTL_SERVER_ENDPOINT_URL=http://127.0.0.1:1
LAKECTL_CREDENTIALS_ACCESS_KEY_ID=stack-key
LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=stack-secret
PERAGO_LAKEFS_STORAGE_NAMESPACE=local://stack
CONDUCTOR_SERVER_URL=http://127.0.0.1:2/api
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("PERAGO_", "LAKECTL_", "CONDUCTOR_")):
            monkeypatch.delenv(name)


@pytest.fixture
def stack(tmp_path):
    """A stack that is up, as far as can be told without asking its servers."""
    directory = tmp_path / ".perago" / "stack"
    process = asdict(process_of(os.getpid()))
    record = {"port": 1, "health_url": "http://127.0.0.1:1/", "version": "1", "process": process}
    for kind in KINDS:
        (directory / kind.name).mkdir(parents=True)
        (directory / kind.name / "state.json").write_text(json.dumps(record))
    (directory / STACK_SETTINGS).write_text(STACK)
    return directory


@pytest.mark.parametrize(
    ("on", "store", "orchestrator"),
    [
        ("embedded", "embedded", "embedded"),
        ("lakefs", "lakefs", "embedded"),
        ("conductor", "lakefs", "conductor"),
    ],
)
def test_each_place_has_its_servers(on, store, orchestrator, monkeypatch):
    monkeypatch.setenv("PERAGO_STORE", "lakefs")
    monkeypatch.setenv("PERAGO_ORCHESTRATOR", "conductor")
    settings = settings_for(None, on, None)
    assert (settings.store, settings.orchestrator) == (store, orchestrator)
    assert backend_of(settings) == on


def test_without_it_the_environment_decides(monkeypatch):
    assert backend_of(settings_for(None, None, None)) == "embedded"
    monkeypatch.setenv("PERAGO_STORE", "lakefs")
    assert backend_of(settings_for(None, None, None)) == "lakefs"


def test_a_command_that_needs_servers_has_them_and_more_if_the_environment_says(monkeypatch):
    assert backend_of(settings_for(None, None, "lakefs")) == "lakefs"
    monkeypatch.setenv("PERAGO_ORCHESTRATOR", "conductor")
    assert backend_of(settings_for(None, None, "lakefs")) == "conductor"


def test_such_a_command_offers_no_place_that_lacks_them():
    assert backends_from(None) == ["embedded", "lakefs", "conductor", "stack"]
    assert backends_from("lakefs") == ["lakefs", "conductor", "stack"]
    assert backends_from("conductor") == ["conductor", "stack"]


@pytest.mark.usefixtures("stack")
def test_on_the_stack_nobody_elses_servers_and_keys_count(monkeypatch):
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://production.example")
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://production.example/api")
    monkeypatch.setenv("CONDUCTOR_AUTH_KEY", "production-key")
    monkeypatch.setenv("CONDUCTOR_AUTH_SECRET", "production-secret")
    settings = settings_for(None, "stack", None)
    assert (settings.store, settings.orchestrator) == ("lakefs", "conductor")
    address, key, secret = settings.lakefs_login
    assert (address, key) == ("http://127.0.0.1:1", "stack-key")
    assert secret.get_secret_value() == "stack-secret"
    assert settings.conductor_login == ("http://127.0.0.1:2/api", None, None)
    assert settings.lakefs_storage_namespace == "local://stack"


def test_a_stack_that_was_never_up_is_told_with_the_command_that_starts_it(tmp_path):
    with pytest.raises(RuntimeConfigError, match="isn't running") as refused:
        settings_for(None, "stack", None)
    assert str(tmp_path) in refused.value.message
    assert "`perago stack up`" in refused.value.fix


@pytest.mark.parametrize("missing", ["lakefs/state.json", STACK_SETTINGS])
def test_a_stack_that_is_half_up_isnt_used(stack, missing):
    (stack / missing).unlink()
    with pytest.raises(RuntimeConfigError, match="isn't running"):
        settings_for(None, "stack", None)
