"""What this machine has or fetches once: programs, Javas, and the cache that keeps them.

Knows package registries, files and processes; never what anything is fetched for.
"""

from __future__ import annotations
