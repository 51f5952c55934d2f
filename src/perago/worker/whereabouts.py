"""The step an executor is at, in memory that its supervisor sees as well.

Not a message: it costs nothing to say, and it is true to the last moment of one that is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Self

STEPS = (
    "",
    "validate",
    "directory",
    "fetch",
    "pre",
    "body",
    "post",
    "fence1",
    "stage.branch",
    "stage.upload",
    "stage.commit",
    "checks",
    "fence2",
    "publish",
    "report",
)
"""In the order they come in; the first one is that of an attempt that hasn't begun."""

_NUMBERS = {step: number for number, step in enumerate(STEPS)}


class Whereabouts:
    """One byte, which is never seen half written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def new(cls) -> Self:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    @property
    def step(self) -> str:
        return STEPS[self._memory[0]]

    @step.setter
    def step(self, step: str) -> None:
        self._memory[0] = _NUMBERS[step]

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
