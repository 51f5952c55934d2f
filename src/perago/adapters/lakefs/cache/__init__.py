"""The cache of downloaded objects on this machine, shared by its processes.

It knows nothing of lakeFS's API. Every object is hashed again when it is copied out. An error in
the cache only makes it keep or find less; it never fails a download.
"""

from perago.adapters.lakefs.cache.cache import ObjectCache, Trimmed

__all__ = ["ObjectCache", "Trimmed"]
