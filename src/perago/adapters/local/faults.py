"""Faults at the named places between an attempt's steps: crash, freeze, delay or raise.

A spec is a comma-separated list of ``failpoint=action``::

    publish.sent=kill                 SIGKILL to the own process
    publish.sent=kill-once:FILE       the same, but only the first time (FILE counts)
    publish.sent=kill-at:2:FILE       the same, but only the second time
    fence2.passed=stop                SIGSTOP to the own process
    fence2.passed=stop-once:FILE      the same, but only the first time
    body.done=delay:1.5               sleep that many seconds
    staging.uploaded=raise            raise an error, as a failing step would
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from perago.errors import RuntimeConfigError, StoreUnavailableError
from perago.ports.environment import FAILPOINTS

Action = Callable[[str], None]


class InjectedFaults:
    """Implements :class:`perago.ports.environment.Failpoints` from a table of actions."""

    def __init__(self, actions: dict[str, Action]) -> None:
        for name in actions:
            if name not in FAILPOINTS:
                raise RuntimeConfigError(
                    f"failpoint {name!r} doesn't exist", fix=f"use one of {', '.join(FAILPOINTS)}"
                )
        self._actions = actions

    def hit(self, name: str) -> None:
        if action := self._actions.get(name):
            action(name)


def parse_faults(spec: str) -> InjectedFaults:
    """Raises RuntimeConfigError naming the failpoint or action that doesn't exist."""
    actions: dict[str, Action] = {}
    for part in filter(None, (p.strip() for p in spec.split(","))):
        name, _, action = part.partition("=")
        kind, _, argument = action.partition(":")
        if kind not in _ACTIONS:
            raise RuntimeConfigError(
                f"fault {part!r}: action {kind!r} doesn't exist",
                fix=f"use failpoint=action with one of {', '.join(sorted(_ACTIONS))}",
            )
        try:
            actions[name] = _ACTIONS[kind](argument)
        except ValueError:
            raise RuntimeConfigError(
                f"fault {part!r}: action {kind!r} can't take {argument!r}",
                fix="write delay:SECONDS, kill-once:FILE, kill-at:OCCASION:FILE or stop-once:FILE",
            ) from None
    return InjectedFaults(actions)


def kill() -> Action:
    return lambda _name: os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> Action:
    return lambda _name: os.kill(os.getpid(), signal.SIGSTOP)


def only_at(occasion: int, counter: Path, action: Action) -> Action:
    """On that occasion only, counted over all processes that share the ``counter`` file."""

    def act(name: str) -> None:
        with counter.open("ab") as file:
            file.write(b".")
        if counter.stat().st_size == occasion:
            action(name)

    return act


def delay(seconds: float) -> Action:
    return lambda _name: time.sleep(seconds)


def fail() -> Action:
    def act(name: str) -> None:
        raise StoreUnavailableError(f"fault injected at {name}")

    return act


def _occasion_and_file(argument: str) -> tuple[int, Path]:
    occasion, _, file = argument.partition(":")
    return int(occasion), _named_file(file)


def _named_file(argument: str) -> Path:
    if not argument:
        raise ValueError("a file is needed")
    return Path(argument)


_ACTIONS: dict[str, Callable[[str], Action]] = {
    "kill": lambda _argument: kill(),
    "kill-once": lambda argument: only_at(1, _named_file(argument), kill()),
    "kill-at": lambda argument: only_at(*_occasion_and_file(argument), kill()),
    "stop": lambda _argument: freeze(),
    "stop-once": lambda argument: only_at(1, _named_file(argument), freeze()),
    "delay": lambda argument: delay(float(argument)),
    "raise": lambda _argument: fail(),
}
