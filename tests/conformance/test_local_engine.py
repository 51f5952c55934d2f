"""The local engine keeps every promise of the engine port, however its bodies reach their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pytest

from perago.adapters.local.engine import LocalEngine
from perago.testing.conformance.engine import EngineConformance, PathArgument

if TYPE_CHECKING:
    from perago.ports.engine import Engine, OpenWorkspace


class TestLocalEngine(EngineConformance, PathArgument):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine()


class WorkspaceByUri:
    """A local workspace that tells its body an address instead of a path."""

    def __init__(self, opened):
        self._opened = opened

    def __getattr__(self, name):
        return getattr(self._opened, name)

    @property
    def argument(self) -> str:
        return f"file://{quote(str(self._opened.argument))}"


class EngineByUri(LocalEngine):
    def open(self, *arguments, **options):
        return WorkspaceByUri(super().open(*arguments, **options))


def _file_at(opened: OpenWorkspace, path: str) -> Path:
    return Path(unquote(str(opened.argument).removeprefix("file://"))) / path


class TestAnEngineWithoutPaths(EngineConformance):
    @pytest.fixture
    def engine(self) -> Engine:
        return EngineByUri()

    def write(self, opened: OpenWorkspace, path: str, data: bytes) -> None:
        file = _file_at(opened, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def remove(self, opened: OpenWorkspace, path: str) -> None:
        _file_at(opened, path).unlink()

    def read(self, opened: OpenWorkspace, path: str) -> bytes:
        return _file_at(opened, path).read_bytes()
