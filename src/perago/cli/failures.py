"""Errors as people and programs see them: a message, the fix, and a telling exit code."""

from __future__ import annotations

import io
import json
import traceback

import click

from perago import errors
from perago.cli.streams import tell

EXIT_CODES = {
    # the first matching row counts
    0: ("it worked", ()),
    2: (
        "wrong usage, settings, declaration or input",
        (errors.TaskDefinitionError, errors.RuntimeConfigError, errors.TaskInputError),
    ),
    3: (
        "something named doesn't exist",
        (
            errors.RepositoryNotFoundError,
            errors.BranchNotFoundError,
            errors.CommitNotFoundError,
            errors.RunNotFoundError,
        ),
    ),
    4: (
        "refused, and nothing was changed: a fence, a busy branch, a definition that differs, …",
        (
            errors.FenceError,
            errors.BranchBusyError,
            errors.RunBusyError,
            errors.StoreRefusedError,
            errors.OrchestratorRefusedError,
            errors.DefinitionDiffersError,
            errors.RepositoryExistsError,
            errors.BranchExistsError,
        ),
    ),
    5: (
        "the store or the queue: corrupt, full, unavailable, or a publication to look into",
        (errors.StoreError, errors.OrchestratorError, errors.UnsettledPublishError),
    ),
    1: ("what was asked for failed: a run, a check, a verification", (errors.PeragoError,)),
    70: ("a bug in Perago", (Exception,)),
    130: ("interrupted; a run is paused and can be resumed, and on Conductor goes on", ()),
}


def exit_code_for(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next(code for code, (_, kinds) in EXIT_CODES.items() if isinstance(error, kinds))


def show_failure(error: Exception, *, as_json: bool, debug: bool) -> None:
    if debug:
        tell("".join(traceback.format_exception(error)))
    if as_json:
        tell(json.dumps({"error": _document(error)}, ensure_ascii=False))
    elif isinstance(error, click.ClickException):
        tell(_usage(error))
    else:
        _lay_out(error, debug=debug)


def _document(error: Exception) -> dict[str, str | None]:
    if isinstance(error, errors.PeragoError):
        return {"code": error.code, "message": error.message, "fix": error.fix}
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "perago"
        fix = f"`{command} --help` says what it takes"
        return {"code": "usage", "message": error.format_message(), "fix": fix}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}", "fix": None}


def _usage(error: click.ClickException) -> str:
    words = io.StringIO()
    error.show(words)
    return words.getvalue().rstrip("\n")


def _lay_out(error: Exception, *, debug: bool) -> None:
    document = _document(error)
    tell(f"{click.style('error:', fg='red', bold=True)} {document['message']}")
    if fix := document["fix"]:
        tell(f"  {click.style('fix:', fg='green', bold=True)} {fix}")
    if not isinstance(error, errors.PeragoError) and not debug:
        tell("  This is a bug in Perago. --debug shows where.")
