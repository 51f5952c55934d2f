"""Objects that were fetched, kept on this machine for its processes; knows nothing of lakeFS's API.

It is never more than a shortcut: whatever comes out of it has been hashed again on the way, and
whatever goes wrong with it makes it keep or find less, without a word.
"""

from perago.adapters.lakefs.cache.cache import ObjectCache, Trimmed

__all__ = ["ObjectCache", "Trimmed"]
