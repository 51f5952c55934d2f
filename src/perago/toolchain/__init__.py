"""Tools that this machine has or fetches once: Javas, Spark's jars, and the cache that keeps them.

Knows package registries, files and processes; never what a tool is fetched for.
"""

from __future__ import annotations
