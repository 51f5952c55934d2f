"""Processes that obey file permissions even when root starts them.

The files of an embedded store are lent to Spark under a second name, and are read-only. Root may
write them all the same, and one careless ``overwrite`` would damage every commit that has them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PR_CAPBSET_DROP = 24  # linux/prctl.h
_CAP_DAC_OVERRIDE = 1  # linux/capability.h


def obediently(start: Callable[[], T]) -> T:
    """Call what starts a process; it and its children can't write what is read-only.

    What a thread gives up is only what it could hand on: this process keeps its own rights.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return start()
    with ThreadPoolExecutor(1, initializer=_give_up_overriding) as thread:
        return thread.submit(start).result()


def _give_up_overriding() -> None:
    # Where that is refused there was nothing to give up: only root with its rights may do it.
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
