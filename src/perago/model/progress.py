"""Progress of a step that takes time: a transfer of objects, or Spark's computation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Transfer:
    """Objects and bytes moved so far, of how many."""

    objects: int = 0
    bytes: int = 0
    total_objects: int = 0
    total_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        return self.objects == self.total_objects

    @property
    def share(self) -> float:
        return self.bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def in_words(self) -> str:
        """For people; empty if there is nothing to move."""
        return f"{self.objects:,}/{self.total_objects:,} objects" if self.total_objects else ""


@dataclass(frozen=True, slots=True)
class Computation:
    """Tasks of the running Spark jobs done so far; ``doing`` is Spark's description of the jobs."""

    doing: str = ""
    tasks: int = 0
    total_tasks: int = 0

    @property
    def is_whole(self) -> bool:
        return self.tasks == self.total_tasks

    @property
    def share(self) -> float:
        return self.tasks / self.total_tasks if self.total_tasks else 0.0

    @property
    def in_words(self) -> str:
        counts = f"{self.tasks:,}/{self.total_tasks:,} tasks" if self.total_tasks else ""
        return " · ".join(filter(None, (counts, self.doing)))


Progress: TypeAlias = Transfer | Computation
