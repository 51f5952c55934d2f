"""A pipeline that turns listening events into a ranking of songs: four tasks on one workspace.

Start reading at ``tasks``. The modules use only Perago's public names, and import each other
relatively, so a copy of this directory works under any name.
"""

from __future__ import annotations

from .tasks import songs

__all__ = ["songs"]
