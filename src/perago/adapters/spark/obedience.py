"""Processes that obey file permissions even when root starts them.

The files of an embedded store are lent to Spark under a second name, and are read-only. Root may
write them all the same, and one careless ``overwrite`` would damage every commit that has them.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PR_CAPBSET_DROP = 24  # linux/prctl.h
_CAP_DAC_OVERRIDE, _CAP_SETPCAP = 1, 8  # linux/capability.h


def obediently(start: Callable[[], T]) -> T:
    """Call what starts a process; it and its children can't write what is read-only.

    What a thread gives up is only what it could hand on: this process keeps its own rights. Where
    it isn't possible, it isn't so: ask :func:`is_obedience_possible`.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return start()
    with ThreadPoolExecutor(1, initializer=_give_up_overriding) as thread:
        return thread.submit(start).result()


def is_obedience_possible() -> bool:
    """Whether what :func:`obediently` starts does obey: not where root can't give up its rights."""
    if os.geteuid() != 0:
        return True
    if sys.platform != "linux":
        return False
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return rights is not None and may_be_given_up(int(rights[1], 16))


def may_be_given_up(rights: int) -> bool:
    """Whether a process with these rights can start one that obeys."""
    return not rights >> _CAP_DAC_OVERRIDE & 1 or bool(rights >> _CAP_SETPCAP & 1)


def _give_up_overriding() -> None:
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
