"""Mistake: a prefix that leaves the repository."""

from perago import WorkspaceSpec

SPEC = WorkspaceSpec(prefix="../songs")
