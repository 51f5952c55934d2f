"""The orchestrator on a real Conductor, over its HTTP API. It knows nothing of stored data."""
