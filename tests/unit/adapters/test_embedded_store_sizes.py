"""Sizes: a large object, many branches."""

from __future__ import annotations

import json
import subprocess
import sys

from perago.adapters.embedded.store import EmbeddedStore

LARGE = """
import json, resource, sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
from perago.model.workspace import Download, Signature, Upload
root = Path(sys.argv[1])
store = EmbeddedStore(root / "store", durable=False)
store.create_repository("data")
file = root / "large"
with file.open("wb") as sparse:
    sparse.truncate(300 << 20)
    sparse.seek(200 << 20)
    sparse.write(b"in the middle")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store.upload("data", "main", [Upload("large", file, Signature.of(file.stat()))])
(entry,) = store.list_objects("data", "main")
(fetched,) = store.download("data", "main", [Download(entry, root / "out")]).files
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
with (root / "out").open("rb") as out:
    out.seek(200 << 20)
    middle = out.read(13).decode()
print(json.dumps({"grown": grown, "middle": middle, "size": fetched.signature.size}))
store.close()
"""


def test_a_large_object_needs_little_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout)
    assert (measured["size"], measured["middle"]) == (300 << 20, "in the middle")
    assert measured["grown"] < 20_000  # kB


def test_thousands_of_branches_are_no_burden(tmp_path):
    store = EmbeddedStore(tmp_path / "store", durable=False)
    store.create_repository("data")
    for n in range(3000):
        store.create_branch("data", f"branch-{n:04}", "main", hidden=n % 2 == 0)
    assert len(list(store.branches("data"))) == 3001
    assert [b.name for b in store.branches("data", prefix="branch-299")] == [
        f"branch-299{n}" for n in range(10)
    ]
    assert store.gc(keep_seconds=0).commits == 0
    store.close()
