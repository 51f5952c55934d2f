"""The embedded store and queue: SQLite and plain files on one machine, no server."""
