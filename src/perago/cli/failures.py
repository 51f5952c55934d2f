"""Errors as people and programs see them: a message, the fix, and a telling exit code."""

from __future__ import annotations

import json
import traceback

import click

from perago import errors

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
        "refused, and nothing was changed: a fence, a busy branch or run, an existing name",
        (
            errors.FenceError,
            errors.BranchBusyError,
            errors.RunBusyError,
            errors.StoreRefusedError,
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
    130: ("interrupted; a run is paused and can be resumed", ()),
}


def exit_code_for(error: Exception) -> int:
    return next(code for code, (_, kinds) in EXIT_CODES.items() if isinstance(error, kinds))


def show_failure(error: Exception, *, as_json: bool, debug: bool) -> None:
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True)
    known = isinstance(error, errors.PeragoError)
    code = error.code if isinstance(error, errors.PeragoError) else "internal"
    message = error.message if isinstance(error, errors.PeragoError) else _unexpected(error)
    fix = error.fix if isinstance(error, errors.PeragoError) else None
    if as_json:
        detail = {"code": code, "message": message, "fix": fix}
        click.echo(json.dumps({"error": detail}, ensure_ascii=False), err=True)
        return
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if fix:
        click.echo(f"  {click.style('fix:', fg='green', bold=True)} {fix}", err=True)
    if not known and not debug:
        click.echo("  This is a bug in Perago. --debug shows where.", err=True)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
