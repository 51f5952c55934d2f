"""Run as a script where jgo is installed: put one jar from Maven repositories into a place.

Arguments: group, name, version, classifier, a directory to work in, and where the jar goes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jgo.config import GlobalSettings  # type: ignore[import-not-found] # see maven.py
from jgo.maven import MavenContext  # type: ignore[import-not-found]

_PATIENCE_SECONDS = 60


def main(arguments: list[str]) -> None:
    group, name, version, classifier, work, target = arguments
    context = MavenContext(repo_cache=Path(work), timeout=_PATIENCE_SECONDS)
    context.remote_repos.update(GlobalSettings.load().repositories)
    artifact = context.project(group, name).at_version(version).artifact(classifier=classifier)
    artifact.resolve().rename(target)


if __name__ == "__main__":
    main(sys.argv[1:])
