"""What task authors write: tasks, workspaces, guardrails, pipelines.

Private: the public names are in :mod:`perago`. Nothing here knows how a task is run.
"""
