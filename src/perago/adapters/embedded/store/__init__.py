"""The embedded store: versioned workspaces in one directory. It knows nothing of runs or tasks."""

from perago.adapters.embedded.store.store import EmbeddedStore

__all__ = ["EmbeddedStore"]
