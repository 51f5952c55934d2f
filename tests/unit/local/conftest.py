"""A workspace as a task's body meets it, on a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perago.adapters.local.engine import LocalEngine
from perago.testing import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from perago.adapters.local.engine import LocalWorkspace


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def fetch(bench: Bench) -> Callable[..., LocalWorkspace]:
    """Commit these objects and open a workspace on them."""
    count = iter(range(1000))

    def open_workspace(objects: Mapping[str, str | bytes], prefix: str = "/") -> LocalWorkspace:
        ref = bench.write(objects) if objects else bench.head
        directory = bench.root / f"attempt-{next(count)}" / "files"
        directory.mkdir(parents=True)
        return LocalEngine().open(bench.store, bench.workspace(ref), prefix, directory)

    return open_workspace
