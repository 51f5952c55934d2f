"""The local engine: a task's workspace as a private directory of ordinary files."""
