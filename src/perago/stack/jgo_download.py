"""A script, run where jgo is installed: fetch one jar from Maven repositories.

Arguments: group, name, version, classifier, a scratch directory, and the path of the jar.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jgo.config import GlobalSettings  # type: ignore[import-not-found] # see maven.py
from jgo.maven import MavenContext  # type: ignore[import-not-found]

_TIMEOUT_SECONDS = 60


def main(arguments: list[str]) -> None:
    group, name, version, classifier, scratch, target = arguments
    context = MavenContext(repo_cache=Path(scratch), timeout=_TIMEOUT_SECONDS)
    context.remote_repos.update(GlobalSettings.load().repositories)
    artifact = context.project(group, name).at_version(version).artifact(classifier=classifier)
    artifact.resolve().rename(target)


if __name__ == "__main__":
    main(sys.argv[1:])
