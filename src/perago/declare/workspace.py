"""The part of a repository that a task works on, and what a Spark body gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import AfterValidator, Field, PlainValidator, field_validator, model_validator

from perago.declare.guardrails import FileGuardrail, Guardrail, Phase
from perago.errors import TaskDefinitionError
from perago.model.commit import ACTIONS_PREFIX
from perago.model.declaration import Declaration
from perago.model.tables import TableRules, TableSource
from perago.model.workspace import problem_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_ACTIONS_DIRECTORY = ACTIONS_PREFIX.rstrip("/")


def _guardrail(value: object) -> Guardrail:
    if not isinstance(value, FileGuardrail | TableRules):
        raise ValueError("it is not a guardrail")  # noqa: TRY004 - what pydantic catches
    return value


Guardrails = Annotated[
    Sequence[Annotated[Guardrail, PlainValidator(_guardrail)]],
    AfterValidator(tuple),
    Field(
        description="a list of require_file(…), require_dir(…), require_glob(…), forbid_glob(…), "
        "require_table(…)"
    ),
]


class WorkspaceSpec(Declaration):
    """The objects below ``prefix``: ``songs`` means ``songs/…`` only, ``/`` the whole repository.

    Paths inside the task and in guardrails are relative to the prefix. ``read_only`` tasks publish
    nothing; files they change are discarded.
    """

    prefix: Annotated[str, Field(description="a directory of the repository, such as 'songs'")] = (
        "/"
    )
    pre: Guardrails = ()
    post: Guardrails = ()
    read_only: Annotated[bool, Field(description="True or False")] = False

    @field_validator("prefix", mode="after")
    @classmethod
    def _normalise(cls, prefix: str) -> str:
        written = prefix.strip()
        if written == "/":
            return written
        path = written.lstrip("/").removesuffix("/")
        problem = "it has a backslash" if "\\" in path else problem_with(path)
        if problem:
            raise ValueError(problem)
        if path.split("/")[0] == _ACTIONS_DIRECTORY:
            raise ValueError(f"{ACTIONS_PREFIX} holds the repository's hooks, never a workspace")
        return path

    @model_validator(mode="after")
    def _check_reach(self) -> WorkspaceSpec:
        for guardrail in (*self.pre, *self.post):
            tops = {path.split("/")[0] for path in guardrail.paths}
            if self.prefix == "/" and _ACTIONS_DIRECTORY in tops:
                raise TaskDefinitionError(
                    f"{guardrail.label} can't match any file below the prefix: {ACTIONS_PREFIX} "
                    f"is never part of a workspace",
                    fix="leave that guardrail out",
                )
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> WorkspaceSpec:
        """A table that others refer to must have one format and one set of options."""
        for phase in ("pre", "post"):
            own = self.tables_of(phase)
            for rules in own:
                for path in rules.paths[1:]:
                    telling = [each for each in own if each.path == path] or [
                        each for each in self.tables if each.path == path
                    ]
                    if len({each.source for each in telling}) > 1:
                        raise TaskDefinitionError(
                            f"{rules.label} refers to {path!r}, for which several require_table(…) "
                            "have different formats or options",
                            fix=f"give each require_table({path!r}, …) the same format and options",
                        )
        return self

    def of(self, phase: Phase) -> Sequence[Guardrail]:
        """The guardrails checked before (``pre``) or after (``post``) the body runs."""
        return self.pre if phase == "pre" else self.post

    def sources(self, phase: Phase) -> dict[str, TableSource]:
        """How each table is read: as this phase's guardrails say, else as the other phase's do."""
        return {rules.path: rules.source for rules in (*self.tables, *self.tables_of(phase))}

    def tables_of(self, phase: Phase) -> tuple[TableRules, ...]:
        """The guardrails on tables of one phase."""
        return tuple(rules for rules in self.of(phase) if isinstance(rules, TableRules))

    @property
    def tables(self) -> tuple[TableRules, ...]:
        """The guardrails on tables of both phases."""
        return (*self.tables_of("pre"), *self.tables_of("post"))

    def warnings(self) -> list[str]:
        """What is allowed but probably a mistake: one sentence each, with its fix."""
        repeated = f"{self.prefix}/"
        guardrails = (*self.pre, *self.post)
        return [
            *(
                f"{guardrail.label} repeats the prefix, so it looks below {repeated}{repeated}; "
                f"fix: write {path.removeprefix(repeated)!r}, relative to the prefix"
                for guardrail in guardrails
                for path in guardrail.paths
                if path.startswith(repeated)
            ),
            *(
                f"{guardrail.label} holds for every workspace; "
                "fix: raise min_count, give a max_count, or leave the guardrail out"
                for guardrail in guardrails
                if isinstance(guardrail, FileGuardrail) and guardrail.always_holds
            ),
        ]


class SparkWorkspace(Protocol):
    """The workspace of one attempt, for Spark's own readers and writers.

    Inputs are read at the input commit, whatever is written meanwhile. Outputs go to a private
    copy of that commit: overwriting, appending and overwriting single partitions work as usual, and
    outputs can be read back. Paths are relative to the task's prefix and can't leave it.
    """

    @property
    def spark(self) -> SparkSession:
        """This attempt's own session: its temporary views and settings end with it."""
        ...

    def input(self, path: str = "") -> str:
        """The URI of ``path`` in the input commit, for ``spark.read``. Wildcards are allowed.

        Raises SparkPathError for a path that isn't below the prefix.
        """
        ...

    def output(self, path: str) -> str:
        """The URI to write ``path`` to with ``df.write``: a table's directory.

        Raises SparkPathError for a path that isn't below the prefix and in a read-only task, and
        FenceError if the attempt is no longer valid.
        """
        ...

    def table(self, path: str, *, format: str | None = None, **options: str) -> DataFrame:  # noqa: A002 - as Spark's own readers call it
        """Read a table of the input commit. ``format`` defaults to that of its files' names.

        Raises SparkPathError for a path that isn't below the prefix, a table without files, and
        a format that can't be kept in a workspace.
        """
        ...

    def files(self, pattern: str = "**") -> Sequence[str]:
        """The files of the input commit whose path matches, as in ``require_glob``."""
        ...
