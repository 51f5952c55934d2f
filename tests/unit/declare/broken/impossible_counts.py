"""Mistake: a guardrail that no workspace can meet."""

from perago import WorkspaceSpec, require_glob

SPEC = WorkspaceSpec(prefix="songs", pre=[require_glob("raw/*", min_count=9, max_count=3)])
