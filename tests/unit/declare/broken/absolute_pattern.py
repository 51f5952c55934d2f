"""Mistake: a guardrail pattern that is not relative to the prefix."""

from perago import WorkspaceSpec, require_glob

SPEC = WorkspaceSpec(prefix="songs", pre=[require_glob("/raw/*.jsonl")])
