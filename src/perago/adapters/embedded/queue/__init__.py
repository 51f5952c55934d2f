"""The embedded orchestrator: runs and attempts in one file. It knows nothing of stored data."""

from perago.adapters.embedded.queue.queue import EmbeddedQueue

__all__ = ["EmbeddedQueue"]
