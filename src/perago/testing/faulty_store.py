"""A store whose requests and answers get lost, come twice or are refused, as on a network.

Wrap the store an attempt runs on, and give the faults of a method's calls in their order::

    FaultyStore(store, {"merge": [lose_answer]})            the first merge is applied, unanswered
    FaultyStore(store, {"merge": [healthy, lose_request]})  the second one never arrives
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perago.errors import (
    AnswerLostError,
    HeadMovedError,
    RuntimeConfigError,
    StoreRefusedError,
    StoreUnavailableError,
)
from perago.ports.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Send = Callable[[], Any]
    Fault = Callable[[Send], Any]
    """Takes the call as a function; makes it, or doesn't, and returns or raises."""

T = TypeVar("T")


class FaultyStore:
    """``store``, but the n-th call of a named method meets that method's n-th fault.

    Later calls, and all other methods, go through. ``calls`` names every call in its order, whether
    it got through or not. Raises RuntimeConfigError for a method the store port doesn't have.
    """

    def __init__(self, store: Store, faults: Mapping[str, Sequence[Fault]]) -> None:
        for name in faults:
            if not _is_request(name):
                raise RuntimeConfigError(
                    f"a store has no method {name!r}", fix="name a method of perago.ports.store"
                )
        self._store = store
        self._pending = {name: list(these) for name, these in faults.items()}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not _is_request(name):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            pending = self._pending.get(name)
            fault = pending.pop(0) if pending else healthy
            return fault(lambda: method(*args, **kwargs))

        return call

    @property
    def spared(self) -> dict[str, int]:
        """How many faults were never met, by method: a test should leave none."""
        return {name: len(left) for name, left in self._pending.items() if left}


def _is_request(name: str) -> bool:
    """Whether this is a method of the port. Its attributes never fail."""
    return not name.startswith("_") and callable(getattr(Store, name, None))


def healthy(send: Callable[[], T]) -> T:
    """Let the call through."""
    return send()


def lose_answer(send: Send) -> Any:
    """Applied, but the answer never reaches the caller."""
    send()
    raise AnswerLostError("the connection was dropped before the answer came")


def lose_request(_send: Send) -> Any:
    """Never applied, and the caller can't know."""
    raise AnswerLostError("the connection was dropped before the request was sent")


def refuse_after_applying(send: Send) -> Any:
    """Applied; the caller gets the refusal of a second copy of the same request."""
    send()
    raise HeadMovedError("the branch's head isn't the expected one")


def refuse(_send: Send) -> Any:
    """Refused: certainly not applied."""
    raise StoreRefusedError("the server refused the request")


def duplicate(send: Callable[[], T]) -> T:
    """Applied twice; the caller gets the second answer."""
    send()
    return send()


def unavailable(_send: Send) -> Any:
    """The store is unavailable."""
    raise StoreUnavailableError("the store doesn't answer")


def after(happening: Callable[[], object], then: Fault = healthy) -> Fault:
    """Call ``happening`` just before the request arrives: a delay, or another writer."""

    def fault(send: Send) -> Any:
        happening()
        return then(send)

    return fault


def followed_by(happening: Callable[[], object], then: Fault = lose_answer) -> Fault:
    """Call ``happening`` after the request is applied and before it is answered."""

    def fault(send: Send) -> Any:
        def send_and_be_followed() -> Any:
            answer = send()
            happening()
            return answer

        return then(send_and_be_followed)

    return fault
