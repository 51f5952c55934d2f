"""The ``perago`` command: the table of commands, exit codes, and how errors are shown."""

from __future__ import annotations

import importlib
import io
import json
import sys
import traceback
from typing import Any

import click

from perago import errors
from perago.cli.output import echo_err
from perago.formatting import shorten_ids

COMMANDS = {
    # name: (module[:attribute], one line for --help), in the order a newcomer needs them
    "demo": (
        "perago.cli.demo",
        "Run a demo pipeline on this machine, with a crash and its recovery.",
    ),
    "init": ("perago.cli.init", "Create a project with tasks, a pipeline and tests."),
    "check": ("perago.cli.check", "Validate task modules, pipelines and workflows."),
    "run": ("perago.cli.run", "Run a pipeline, or resume one."),
    "start": ("perago.cli.start", "Run a worker for Conductor."),
    "runs": ("perago.cli.runs", "List runs, or inspect one with its attempts and logs."),
    "cancel": ("perago.cli.runs:cancel_command", "End a run for good."),
    "recover": (
        "perago.cli.runs:recover_command",
        "Start a stopped run again, from the branch's present head.",
    ),
    "history": ("perago.cli.history", "Show what was published to a branch, by which attempt."),
    "diff": ("perago.cli.history:diff_command", "Show how two commits differ."),
    "import": (
        "perago.cli.import_export:import_command",
        "Commit a directory's files to a branch.",
    ),
    "export": ("perago.cli.import_export:export_command", "Write a commit's files to a directory."),
    "extract": (
        "perago.cli.declared:extract_command",
        "Write Conductor task and workflow definitions as JSON.",
    ),
    "register": ("perago.cli.declared:register_command", "Push those definitions to Conductor."),
    "budget": ("perago.cli.budget", "Propose publish budgets from how long publications took."),
    "gc": (
        "perago.cli.upkeep:gc_command",
        "Remove what crashed attempts left, and unreferenced bytes.",
    ),
    "verify": ("perago.cli.upkeep:verify_command", "Re-hash everything in the embedded store."),
    "doctor": ("perago.cli.doctor", "Find out what is misconfigured, and how to fix it."),
    "fence": ("perago.cli.fence", "Install or test the lakeFS compare-and-swap hook."),
    "stack": ("perago.cli.stack", "Run real servers on this machine, without Docker."),
    "completion": ("perago.cli.init:completion_command", "Print the shell completion script."),
}
EXIT_CODES = {
    # the first matching row counts
    0: ("success", ()),
    2: (
        "wrong usage, settings, declaration or input",
        (errors.TaskDefinitionError, errors.RuntimeConfigError, errors.TaskInputError),
    ),
    3: (
        "a named repository, branch, commit or run doesn't exist",
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
        "the store or the orchestrator is corrupt, full or unreachable; a publication is unclear",
        (errors.StoreError, errors.OrchestratorError, errors.UnsettledPublishError),
    ),
    1: ("a run, a check or a verification failed", (errors.PeragoError,)),
    70: ("a bug in Perago", (Exception,)),
    130: ("interrupted; a local run is paused and can be resumed, one on Conductor continues", ()),
}


class LazyGroup(click.Group):
    """Imports a command's module only to run it, to keep --help quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        target, summary = COMMANDS[cmd_name]
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        command.short_help = summary
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " 'perago --help' lists them."
            ctx.fail(f"No command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perago-runtime", prog_name="perago")
def cli() -> None:
    """Typed Python tasks on versioned data: each result is published once, or not at all.

    Try 'perago demo' first. Every command takes --json for programs and --help.
    """


def main(argv: list[str] | None = None) -> None:
    """Entry point: runs a command; turns what it raises into a message and an exit code."""
    arguments: Any = sys.argv[1:] if argv is None else argv
    try:
        code = cli.main(arguments, prog_name="perago", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        echo_err("interrupted")
        code = 130
    except Exception as error:  # noqa: BLE001 - the last place that can report it
        show_error(error, as_json="--json" in arguments, debug="--debug" in arguments)
        code = exit_code_for(error)
    sys.exit(code if isinstance(code, int) else 0)


def exit_code_for(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next(code for code, (_, kinds) in EXIT_CODES.items() if isinstance(error, kinds))


def show_error(error: Exception, *, as_json: bool, debug: bool) -> None:
    if debug:
        echo_err("".join(traceback.format_exception(error)))
    if as_json:
        echo_err(json.dumps({"error": _document(error)}, ensure_ascii=False))
    elif isinstance(error, click.ClickException):
        echo_err(_usage(error))
    else:
        _show_to_person(error, debug=debug)


def _document(error: Exception) -> dict[str, str | None]:
    if isinstance(error, errors.PeragoError):
        return {"code": error.code, "message": error.message, "fix": error.fix}
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "perago"
        fix = f"`{command} --help` lists its arguments"
        return {"code": "usage", "message": error.format_message(), "fix": fix}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}", "fix": None}


def _usage(error: click.ClickException) -> str:
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip("\n")


def _show_to_person(error: Exception, *, debug: bool) -> None:
    document = _document(error)
    echo_err(
        f"{click.style('error:', fg='red', bold=True)} {shorten_ids(document['message'] or '')}"
    )
    if fix := document["fix"]:
        echo_err(f"  {click.style('fix:', fg='green', bold=True)} {shorten_ids(fix)}")
    if not isinstance(error, errors.PeragoError) and not debug:
        echo_err("  This is a bug in Perago. --debug shows where.")
