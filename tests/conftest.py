"""What every test shares: the hypothesis profiles, and a look at every store a test leaves."""

import os

import pytest
from hypothesis import settings

from perago.adapters.embedded.store import EmbeddedStore

# CI repeats the same examples on every run and ignores how slow its machine is, so that a red build
# always means the change; developers explore new examples each time.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def every_store_stays_sound(request):
    """After each test: nothing missing and nothing corrupt in any store below its directory."""
    if "tmp_path" not in request.fixturenames or request.node.get_closest_marker("damages_store"):
        yield
        return
    directory = request.getfixturevalue("tmp_path")
    yield
    for database in directory.rglob("store.db"):
        store = EmbeddedStore(database.parent, durable=False)
        try:
            report = store.verify()
        finally:
            store.close()
        assert report.clean, f"{database.parent}: {report.findings}"
