"""Loading the SDK faster, with its argument checks still in place."""

from __future__ import annotations

import subprocess
import sys

import pydantic.v1
import pytest
from lakefs_sdk import Configuration
from lakefs_sdk.client import LakeFSClient

from perago.adapters.lakefs import client


def test_what_it_is_called_with_is_still_checked_before_anything_is_sent():
    """In a process of its own: here it may have been imported otherwise."""
    program = """
from perago.adapters.lakefs.client import load_client
configuration, client = load_client()
try:
    client(configuration(host="http://127.0.0.1:9")).branches_api.get_branch(["songs"], "main")
except ValueError as refused:
    print(type(refused).__name__, "repository" in str(refused))
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert said.split() == ["ValidationError", "True"]


def test_loading_it_is_over_when_it_returns():
    before = pydantic.v1.validate_arguments
    assert client.load_client() == (Configuration, LakeFSClient)
    assert pydantic.v1.validate_arguments is before


def test_that_a_part_is_missing_is_told_with_what_to_install(monkeypatch):
    before = pydantic.v1.validate_arguments
    monkeypatch.setitem(sys.modules, "lakefs_sdk.client", None)
    with pytest.raises(client.RuntimeConfigError, match="the lakeFS client isn't installed"):
        client.load_client()
    assert pydantic.v1.validate_arguments is before
