"""Which active workflows are on a branch, whoever started them."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

from perago.adapters.conductor.answers import below
from perago.adapters.conductor.search import ACTIVE, PAGE, correlation_of, search, started_after
from perago.adapters.conductor.workflows import is_active, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perago.adapters.conductor.api import Api
    from perago.adapters.conductor.search import Hit

LOOK_ANEW_SECONDS = 10.0
"""How long a list of the active workflows is good for, with the newer ones added to it."""

_OVERLAP_SECONDS = 1.0  # what the index got to know a little later than its neighbours
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)


class BranchWatch:
    """The index lists the active workflows and shows their input as text.

    What the text leaves open is read from the workflow itself, once: an input never changes.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._guard = threading.Lock()
        self._known: dict[str, Hit] = {}
        self._places: dict[str, tuple[str, str] | None] = {}
        self._looked_at = self._asked_at = -LOOK_ANEW_SECONDS

    def active_on(self, repository: str, branch: str) -> list[Hit]:
        """The RUNNING and PAUSED workflows whose input names this branch, oldest first.

        Of more than a thousand active ones, the oldest may be missed if somebody else started them.
        """
        with self._guard:
            self._look_anew(repository, branch)
            return self._on(repository, branch)

    def writers(
        self, repository: str, branch: str, *, asking: str | None, seconds_old: float
    ) -> list[Hit]:
        """As :meth:`active_on`, for one who asks often: most often by one small request, or none.

        Asked so, a workflow that is retried after it had ended is noticed a few seconds later.
        """
        with self._guard:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_ANEW_SECONDS or not self._known:
                self._look_anew(repository, branch)
                return self._on(repository, branch)
            fresh = {asking} if asking in self._known else set()
            if not fresh or now - self._asked_at >= seconds_old:
                fresh |= self._look_for_newer(repository, branch)
            if asking in self._known:  # it asks for the branch that it was given to work on
                self._places.setdefault(asking, (repository, branch))
            found = self._on(repository, branch)
            return [hit for hit in found if hit.id in fresh or self._goes_on(hit)]

    def _look_anew(self, repository: str, branch: str) -> None:
        doing = f"looking for workflows on {repository}/{branch}"
        began = time.monotonic()
        active, total = search(self._api, ACTIVE, doing=doing)
        if total > PAGE:
            ours = f"correlationId='{correlation_of(repository, branch)}'"
            active += search(self._api, ours, ACTIVE, doing=doing)[0]
        self._known = {hit.id: hit for hit in active if hit.status.is_active}
        self._places = {id_: where for id_, where in self._places.items() if id_ in self._known}
        self._looked_at = self._asked_at = began

    def _look_for_newer(self, repository: str, branch: str) -> set[str]:
        began = time.monotonic()
        newest = max(self._known.values(), key=lambda hit: hit.started).started_at
        doing = f"looking for new workflows on {repository}/{branch}"
        found, _ = search(self._api, ACTIVE, started_after(newest - _OVERLAP_SECONDS), doing=doing)
        newer = {hit.id: hit for hit in found if hit.status.is_active}
        self._known |= newer
        self._asked_at = began
        return set(newer)

    def _goes_on(self, hit: Hit) -> bool:
        path = below("workflow", hit.id, "status")
        if is_active(self._api.find(path, doing=f"reading the status of workflow {hit.id}")):
            return True
        del self._known[hit.id]
        return False

    def _on(self, repository: str, branch: str) -> list[Hit]:
        ours, mention = correlation_of(repository, branch), Mention(repository, branch)
        found = [
            hit
            for hit in self._known.values()
            # A sub-workflow inherits the mark of the one above it, and may work elsewhere.
            if (hit.correlation_id == ours and hit.parent_id is None)
            or (mention.is_possible(hit) and self._place_of(hit) == (repository, branch))
        ]
        return sorted(found, key=lambda hit: hit.age_order)

    def _place_of(self, hit: Hit) -> tuple[str, str] | None:
        if hit.id not in self._places:
            path = below("workflow", hit.id, includeTasks="false")
            workflow = self._api.find(path, doing=f"reading workflow {hit.id}")
            self._places[hit.id] = place_of(workflow)
        return self._places[hit.id]


class Mention:
    """Whether an input, as far as it is shown, leaves it possible that it names a branch.

    Servers show an input as Java does, ``{branch=main, …}``, or as JSON.
    """

    def __init__(self, repository: str, branch: str) -> None:
        # The branch first: it tells more of them apart.
        named = {"branch": branch, "repository": repository}
        self._patterns = [
            re.compile(rf'{field}(?:=|":"){re.escape(value)}[",}}]')
            for field, value in named.items()
            if _PLAIN.fullmatch(value)
        ]

    def is_possible(self, hit: Hit) -> bool:
        if not hit.has_whole_input:
            return True
        return all(pattern.search(hit.input) for pattern in self._patterns)


def innermost(hits: Iterable[Hit]) -> list[Hit]:
    """Without those that wait for a sub-workflow of theirs on the same branch: that one writes."""
    found = list(hits)
    above = {hit.parent_id for hit in found}
    return [hit for hit in found if hit.id not in above]
