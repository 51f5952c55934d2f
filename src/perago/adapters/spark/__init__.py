"""Spark as an engine: tasks that read a commit and write straight to their staging area."""
