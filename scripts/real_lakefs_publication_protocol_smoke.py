#!/usr/bin/env python
"""The publication protocol on a real lakeFS, case by case: what is promised, and what is there.

Whole attempts run through Perago's own flow, with the embedded queue as their orchestrator; what
they leave on the server is read by lakeFS's own client, not by Perago. Every case has a target
branch of its own, and every branch made here is deleted, also after Ctrl-C.

The server is the one of ``.env`` or the environment (LAKECTL_…), or of ``perago stack up``. A
repository is made for the purpose if PERAGO_LAKEFS_STORAGE_NAMESPACE says where, and deleted again;
otherwise name one by ``--repository``: its branches and settings stay as they are.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lakefs_scene import AFTER, Place, Scene, edit, leave
from lakefs_sdk.exceptions import ApiException
from lakefs_witness import Skipped, Witness

from perago.adapters.lakefs.client import LakeFSConfig
from perago.errors import PeragoError, RuntimeConfigError
from perago.model.attempt import STAGING_PREFIX
from perago.model.outcome import AttemptOutcome, PublishPath
from perago.settings import load_settings
from perago.wiring import lakefs_config, open_lakefs

REFUSAL = "perago smoke: no merges here"
REFUSING_ACTION = f"""\
name: perago smoke
on:
  pre-merge:
hooks:
  - id: refuse
    type: lua
    properties:
      script: |
        error("{REFUSAL}")
"""


# --- the cases ------------------------------------------------------------------------------------


def output_ref(outcome: AttemptOutcome) -> object:
    workspace = outcome.report.output.get("workspace")
    return workspace["ref"] if isinstance(workspace, dict) else None


def merge(scene: Scene) -> None:
    """H == A: the workspace output is published by a merge."""
    a = scene.start()
    outcome = scene.attempt(edit)
    staged = scene.witness.commit(str(scene.journal.of("stage.commit")["commit"]))
    published = scene.witness.commit(scene.head)
    path = outcome.published.path if outcome.published else None
    scene.verify(
        "the attempt is COMPLETED and was accepted", outcome.accepted and output_ref(outcome)
    )
    scene.verify("by a merge", path is PublishPath.MERGED)
    scene.verify(
        f"its output is the branch's head, {scene.head[:12]}", output_ref(outcome) == scene.head
    )
    scene.verify(f"whose only parent is A, {a[:12]}", published.parents == [a])
    scene.verify("whose tree is C's", published.meta_range_id == staged.meta_range_id)
    scene.verify("and holds what the task left, no more and no less", scene.files == AFTER)


def replacement(scene: Scene) -> None:
    """parent(H) == A: the abandoned publication is replaced by a hard reset to C."""
    a = scene.start()
    h = scene.abandon()
    scene.verify(
        f"H, {h[:12]}, is an abandoned publication on A", scene.witness.commit(h).parents == [a]
    )
    outcome = scene.attempt(edit)
    c = str(scene.journal.of("stage.commit")["commit"])
    scene.verify(
        "the retry is COMPLETED and was accepted", outcome.accepted and output_ref(outcome) == c
    )
    scene.verify(f"the branch ends at C, {c[:12]}, the staging commit itself", scene.head == c)
    scene.verify("the history is A → C", scene.witness.log(scene.branch)[:2] == [c, a])
    scene.verify("never A → H → C", h not in scene.witness.log(scene.branch))
    scene.verify("the branch holds what the retry left", scene.files == AFTER)


def fail_closed(scene: Scene) -> None:
    """parent(H) != A: fails closed, with and without changes."""
    scene.start()
    scene.somebody_writes()
    h = scene.somebody_writes()
    neither = "neither the input commit"
    scene.verify_refused(scene.attempt(edit), h, by=neither, what="an attempt with changes")
    scene.verify_refused(scene.attempt(leave), h, by=neither, what="one without")


def no_op(scene: Scene) -> None:
    """No-op, H == A: completed with A, and no empty commit."""
    a = scene.start()
    before = scene.witness.log(scene.branch)
    outcome = scene.attempt(leave)
    scene.verify("the attempt is COMPLETED with A as its output", output_ref(outcome) == a)
    scene.verify("the branch's head is A", scene.head == a)
    scene.verify("no commit was made", scene.witness.log(scene.branch) == before)
    scene.verify("no staging branch was made", "stage.branch" not in scene.journal.steps())


def no_op_back(scene: Scene) -> None:
    """No-op, parent(H) == A: the branch is relocated back to A, and no empty commit."""
    a = scene.start()
    before = scene.witness.log(scene.branch)
    h = scene.abandon()
    outcome = scene.attempt(leave)
    scene.verify("the attempt is COMPLETED with A as its output", output_ref(outcome) == a)
    scene.verify(f"the branch is back at A, {a[:12]}", scene.head == a)
    scene.verify(
        f"H, {h[:12]}, is off the branch", h != a and h not in scene.witness.log(scene.branch)
    )
    scene.verify("no commit was made", scene.witness.log(scene.branch) == before)
    scene.verify("no staging branch was made", "stage.branch" not in scene.journal.steps())


def merge_refused(scene: Scene) -> None:
    """A precondition of merge fails: a hook of the repository refuses it."""
    _needs_actions(scene)
    scene.witness.write(scene.branch, {"_lakefs_actions/smoke.yaml": REFUSING_ACTION.encode()})
    a = scene.start()
    scene.verify_refused(scene.attempt(edit), a, by=REFUSAL)


def merge_outrun(scene: Scene) -> None:
    """A precondition of merge fails: the head moves after it was read as A."""
    scene.start()
    moved: list[str] = []
    outcome = scene.attempt(edit, publish__head_read=lambda: moved.append(scene.somebody_writes()))
    scene.verify_refused(outcome, moved[0], by="expected was")


def reset_dirty(scene: Scene) -> None:
    """A precondition of hard reset fails: the target has uncommitted objects."""
    scene.start()
    h = scene.abandon()
    scene.witness.put(scene.branch, f"{scene.place.name}/draft.txt", b"not committed")
    scene.verify_refused(scene.attempt(edit), h, by="the branch has uncommitted objects")


def reset_protected(scene: Scene) -> None:
    """A precondition of hard reset fails: the target is protected."""
    if not scene.place.is_own:
        raise Skipped("protection rules are only touched in a repository made for this")
    scene.start()
    h = scene.abandon()
    with scene.witness.protection(scene.branch):
        scene.verify_refused(scene.attempt(edit), h, by="is protected")


def _needs_actions(scene: Scene) -> None:
    if not scene.place.runs_actions:
        raise Skipped("this server doesn't run actions")


CASES: tuple[tuple[Callable[[Scene], None], tuple[str, ...]], ...] = (
    (merge, ("soft", "cas")),
    (replacement, ("soft", "cas")),
    (fail_closed, ("soft", "cas")),
    (no_op, ("soft", "cas")),
    (no_op_back, ("soft", "cas")),
    (merge_refused, ("soft", "cas")),
    (merge_outrun, ("cas",)),  # at soft it lands, and is reported as failed: the race tests' matter
    (reset_dirty, ("soft", "cas")),
    (reset_protected, ("soft", "cas")),
)


# --- the show -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    case: str
    level: str | None
    verified: list[str]
    failed: list[str]
    skipped: str | None = None

    def __str__(self) -> str:
        heading = f"{self.case}  [{self.level}]" if self.level else self.case
        lines = [*(f"  ✓ {one}" for one in self.verified), *(f"  ✗ {one}" for one in self.failed)]
        if self.skipped:
            lines.append(f"  - skipped: {self.skipped}")
        return "\n".join([heading, *lines, ""])


def play(place: Place, case: Callable[[Scene], None], level: str) -> Result:
    """One case to its end, its branches deleted; an error in it is a failure of it, and no more."""
    title, skipped = str(case.__doc__).rstrip("."), None
    with closing(Scene(place, case.__name__.replace("_", "-"), level)) as scene:
        try:
            if level == "cas":
                _needs_actions(scene)
            case(scene)
        except Skipped as reason:
            skipped = str(reason)
        except (PeragoError, ApiException, LookupError, ValueError) as error:
            scene.failed.append(in_one_line(error))
        if skipped is None:
            staging = [name for name in place.ours() if name.startswith(STAGING_PREFIX)]
            scene.verify("no staging branch is left", not staging)
        place.witness.delete_branch(scene.branch)
        if skipped is None:
            scene.verify("its target branch is deleted", scene.branch not in place.ours())
        return Result(title, level, scene.verified, scene.failed, skipped)


def play_all(place: Place, tell: Callable[[object], None]) -> list[Result]:
    """Every case at every level it is about; whatever happens, nothing of it stays."""
    results: list[Result] = []
    try:
        place.prepare()
        for case, levels in CASES:
            for level in levels:
                results.append(play(place, case, level))
                tell(results[-1])
    finally:
        with undisturbed():
            left = place.clean_up()
    statement = "no staging or target branch of any case is left"
    outcome = ([], [f"still there: {', '.join(left)}"]) if left else ([statement], [])
    results.append(Result("Afterwards", None, *outcome))
    tell(results[-1])
    return results


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C ends the cases, not the cleanup."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def opened(repository: str | None) -> Iterator[Place]:
    """The repository that was named, else one to be made."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perago-smoke-")))
        settings = load_settings(home=home, workspace_root=home / "attempts", cache=home / "cache")
        config = lakefs_config(settings)
        name = repository or new_repository(config)
        store = stack.enter_context(closing(open_lakefs(settings)))
        witness = stack.enter_context(closing(Witness(config, name)))
        yield Place(store, witness, home, is_own=repository is None)


def new_repository(config: LakeFSConfig) -> str:
    """A name for one of its own. Raises RuntimeConfigError if it couldn't be made."""
    if config.storage_namespace is None:
        raise RuntimeConfigError(
            "no repository was named, and there is no saying where a new one would keep its "
            "objects",
            fix="give --repository NAME, or set PERAGO_LAKEFS_STORAGE_NAMESPACE",
        )
    return f"perago-smoke-{secrets.token_hex(4)}"


def show(repository: str | None, *, as_json: bool) -> int:
    """Play all cases and print what came of them; 1 if anything failed."""
    with opened(repository) as place:
        where = f"lakeFS {place.witness.version}, repository {place.repository}"
        if as_json:
            results = play_all(place, lambda _result: None)
        else:
            print(f"{where}\n", flush=True)
            results = play_all(place, lambda result: print(result, flush=True))
    totals = {kind: sum(len(getattr(r, kind)) for r in results) for kind in ("verified", "failed")}
    totals["skipped"] = sum(result.skipped is not None for result in results)
    if as_json:
        cases = [asdict(result) for result in results]
        print(json.dumps({"server": where, "cases": cases, **totals}, ensure_ascii=False))
    else:
        skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
        print(f"{totals['verified']} verified, {totals['failed']} failed{skipped}")
    return 1 if totals["failed"] else 0


def in_one_line(error: Exception) -> str:
    words = error.body if isinstance(error, ApiException) and error.body else error
    return f"{type(error).__name__}: {' '.join(str(words).split())}"


def main() -> int:
    """Exit code 0: all verified; 1: something failed; 2: wrong settings; 130: interrupted."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--repository", help="use this one instead of a repository of its own")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be cleaned up after as well
    try:
        return show(arguments.repository, as_json=arguments.json)
    except KeyboardInterrupt:
        print("interrupted; what was made is deleted", file=sys.stderr)
        return 130
    except (PeragoError, ApiException) as error:
        print(f"error: {in_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, RuntimeConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
