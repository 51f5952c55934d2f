"""Listening events become a ranking of songs: four tasks on one versioned workspace.

Ordinary modules, as a user would write them: begin with ``tasks``. They use Perago's public names
only, and each other by relative imports, so a copy of this directory works under any name.
"""

from __future__ import annotations

from .tasks import songs

__all__ = ["songs"]
