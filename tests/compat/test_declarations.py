"""A task module written for perago 0.6.1 means the same to both, but for what is listed here."""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

MODULES = Path(__file__).parent / "modules"
SHARED = ["features_build", "metadata_validate", "catalog_report", "spelled_otherwise"]

ONLY_OURS = {"backoffScaleFactor": 1}
"""What Conductor takes anyway where a definition leaves it out."""

SPELLED_OTHERWISE = {"refType": "ref_type"}
SAID_ELSEWHERE = {"title", "description", "additionalProperties", "pattern", "$defs"}


@pytest.fixture
def module(request, project):
    """A module for 0.6.1, by itself in the current directory."""
    shutil.copy(MODULES / f"{request.param}.py", project)
    return request.param


def everywhere(*names):
    return pytest.mark.parametrize("module", names, indirect=True)


@everywhere(*SHARED)
def test_both_accept_the_module(module, perago, peer_says):
    for command in ("check", "extract"):
        code, said = peer_says[module][command]
        assert code == 0, said
    ours = perago("check", module)
    assert ours.code == 0, ours.out


@everywhere(*SHARED)
def test_both_generate_the_same_task_definition(module, perago, peer_says):
    theirs = dict(peer_says[module]["definition"])
    (ours,) = perago("extract", module, "--json").json["tasks"]
    for side in ("inputSchema", "outputSchema"):
        assert plain(ours.pop(side)["data"]) == plain(theirs.pop(side)["data"])
    assert ours == theirs | ONLY_OURS


@everywhere("metadata_validate")
def test_both_close_the_schema_of_strict_params(module, perago, peer_says):
    theirs = peer_says[module]["definition"]["inputSchema"]["data"]
    (ours,) = perago("extract", module, "--json").json["tasks"]
    song = ours["inputSchema"]["data"]["$defs"]["Song"]
    assert song["additionalProperties"] is False
    params = theirs["properties"]["params"]
    assert params["properties"]["song"]["additionalProperties"] is False


@everywhere("measured")
def test_metrics_of_its_own_are_the_one_thing_that_is_refused_and_said_so(
    module, perago, peer_says
):
    assert peer_says[module]["check"][0] == 0
    (checked,) = perago("check", module, "--json").json["checked"]
    assert checked["error"]["code"] == "task_definition"
    assert "measured.py:5: there is no Metric" in checked["error"]["message"]
    assert "leave metrics=… and the parameter out" in checked["error"]["fix"]


def plain(schema, definitions=None):
    """A JSON schema without references, and without what the two say in other places."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        merged = definitions[name] | {k: v for k, v in schema.items() if k != "$ref"}
        return plain(merged, definitions)
    return {
        key: _renamed(value, definitions) if key == "properties" else _plain(value, definitions)
        for key, value in schema.items()
        if key not in SAID_ELSEWHERE
    }


def _plain(value, definitions):
    if isinstance(value, dict):
        return plain(value, definitions)
    if isinstance(value, list):
        return [
            SPELLED_OTHERWISE.get(v, v) if isinstance(v, str) else _plain(v, definitions)
            for v in value
        ]
    return value


def _renamed(properties, definitions):
    return {SPELLED_OTHERWISE.get(k, k): plain(v, definitions) for k, v in properties.items()}
