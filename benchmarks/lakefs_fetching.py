"""A process that fetches one workspace from lakeFS as an attempt would, and ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perago.model.workspace import WorkspaceRef
from perago.settings import load_settings
from perago.wiring import local_engine, open_lakefs


def main() -> None:
    asked = json.loads(sys.argv[1])
    workspace = WorkspaceRef.model_validate(asked["workspace"])
    store = open_lakefs(load_settings(store="lakefs"))
    local_engine().open(store, workspace, "/", Path(asked["into"]))
    store.close()


if __name__ == "__main__":
    main()
