"""A store whose answers get lost, come twice or lie: what a network does to any of them.

Wrap the store an attempt runs on, and say which call of which method meets which fault::

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
    """Given the call as it would have been made, does with it what the network did."""

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
        """How many faults never came up, by method: a test should leave none."""
        return {name: len(left) for name, left in self._pending.items() if left}


def _is_request(name: str) -> bool:
    """Whether the port has a method of this name; what it only tells about a store never fails."""
    return not name.startswith("_") and callable(getattr(Store, name, None))


def healthy(send: Callable[[], T]) -> T:
    """Let the call through."""
    return send()


def lose_answer(send: Send) -> Any:
    """Applied, but whoever asked never hears of it."""
    send()
    raise AnswerLostError("the connection was dropped before the answer came")


def lose_request(_send: Send) -> Any:
    """Never applied, and whoever asked can't tell."""
    raise AnswerLostError("the connection was dropped before the request was sent")


def refuse_after_applying(send: Send) -> Any:
    """Applied; the answer is the refusal of a second copy of the same request."""
    send()
    raise HeadMovedError("the branch's head isn't the expected one")


def refuse(_send: Send) -> Any:
    """A definite no."""
    raise StoreRefusedError("the server doesn't want to")


def duplicate(send: Callable[[], T]) -> T:
    """Delivered twice; the answer is the second one's."""
    send()
    return send()


def unavailable(_send: Send) -> Any:
    """Not now."""
    raise StoreUnavailableError("the store doesn't answer")


def after(happening: Callable[[], object], then: Fault = healthy) -> Fault:
    """Something else gets in just before the call arrives: a delay, or another writer."""

    def fault(send: Send) -> Any:
        happening()
        return then(send)

    return fault


def followed_by(happening: Callable[[], object], then: Fault = lose_answer) -> Fault:
    """The call is applied and something else happens before the answer is on its way."""

    def fault(send: Send) -> Any:
        def send_and_be_followed() -> Any:
            answer = send()
            happening()
            return answer

        return then(send_and_be_followed)

    return fault
