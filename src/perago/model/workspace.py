"""Where a task's data is: a repository, a branch to publish to, a commit to start from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[
    str, StringConstraints(strict=True, min_length=1, strip_whitespace=False, pattern=r"\S")
]


class WorkspaceRef(BaseModel):
    """A task's ``workspace`` input and output: all four fields, nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: Name
    branch: Name
    ref_type: Literal["commit"]
    ref: Name

    def moved_to(self, ref: str) -> WorkspaceRef:
        return self.model_copy(update={"ref": ref})
