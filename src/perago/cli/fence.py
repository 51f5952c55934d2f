"""``perago fence``: install or test the lakeFS compare-and-swap hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perago.cli.options import close_with_command, common_options
from perago.formatting import COMMIT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from perago.cli.output import Output
    from perago.operations.fence_install import Installation
    from perago.settings import Settings

_branch_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--branch", help="The branch.  [default: the repository's default branch]"
)


@click.group()
def command() -> None:
    """The fence of a lakeFS repository: a hook that compares the head before every merge.

    With it, publications have the level 'cas': lakeFS refuses a merge unless the branch's head is
    the one that the merge expects, and any merge that doesn't name the head it expects.
    """


@command.command(short_help="Install the fence on a branch, in a commit of its own.")
@click.argument("repository")
@_branch_option
@common_options(on=True, minimum="lakefs")
def install(*, repository: str, branch: str | None, output: Output, settings: Settings) -> None:
    """Install the fence on a branch of REPOSITORY, in a commit that changes nothing else.

    Branches created from it have the fence, too. An installed fence is kept; one of another version
    is replaced. Refused while an active run writes the branch. From then on, merges made by other
    means must carry the metadata perago.expected_head.

    \b
    JSON: {"repository", "branch", "outcome": "installed" | "replaced" | "present",
      "commit": id | null if it was installed, "head": id}
    """
    from rich.text import Text

    from perago.operations.branches import assert_no_active_run
    from perago.operations.fence_install import install_fence
    from perago.wiring import open_lakefs, open_runs

    runs = close_with_command(open_runs(settings))
    store = close_with_command(open_lakefs(settings))
    target = branch or store.default_branch(repository)
    assert_no_active_run(runs, repository, target)
    done = install_fence(
        store,
        repository,
        target,
        before_publishing=lambda: assert_no_active_run(runs, repository, target),
    )
    outcome = _outcome(done)
    document = {
        "repository": repository,
        "branch": target,
        "outcome": outcome,
        "commit": done.commit.id if done.commit else None,
        "head": done.head.id,
    }
    words = {
        "installed": "installed the fence:",
        "replaced": "replaced another version of the fence:",
        "present": "the fence was installed already:",
    }
    output.show(
        document,
        lambda: Text(
            f"{words[outcome]} {repository}/{target} is at {done.head.id[:COMMIT_LENGTH]}; "
            f"`perago fence probe {repository} --branch {target}` tests that lakeFS enforces it"
        ),
    )


def _outcome(done: Installation) -> str:
    if done.commit is None:
        return "present"
    return "replaced" if done.replaced else "installed"


@command.command(short_help="Test that the server enforces the fence.")
@click.argument("repository")
@_branch_option
@common_options(on=True, minimum="lakefs")
def probe(*, repository: str, branch: str | None, output: Output, settings: Settings) -> int:
    """Test that the server enforces the fence on a branch, by a merge that it must refuse.

    The merge is tried on a hidden branch, which is removed. Exit code 0 only if enforced.

    \b
    JSON: {"repository", "branch", "head": id, "enforced": bool,
      "state": "enforced" | "switched off" | "different" | "missing"}
    """
    from rich.text import Text

    from perago.operations.fence_install import FenceState, probe_fence
    from perago.wiring import open_lakefs

    store = close_with_command(open_lakefs(settings))
    target = branch or store.default_branch(repository)
    head = store.head(repository, target)
    state = probe_fence(store, repository, head.id)
    install_it = f"`perago fence install {repository} --branch {target}`"
    words = {
        FenceState.ENFORCED: "enforced: lakeFS refused a merge that expected another head",
        FenceState.SWITCHED_OFF: "installed, but this lakeFS doesn't run actions: set "
        "actions.enabled in its configuration",
        FenceState.DIFFERENT: f"another version is installed, which doesn't count: {install_it}",
        FenceState.MISSING: f"not installed: {install_it}",
    }
    enforced = state is FenceState.ENFORCED
    document = {
        "repository": repository,
        "branch": target,
        "head": head.id,
        "enforced": enforced,
        "state": state.value,
    }
    output.show(
        document,
        lambda: Text(
            f"the fence of {repository}/{target}: {words[state]}",
            style="green" if enforced else "red",
        ),
    )
    return 0 if enforced else 1
