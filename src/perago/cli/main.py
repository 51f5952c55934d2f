"""The ``perago`` command: a table of commands, and what an error looks like."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from perago.cli.streams import tell

COMMANDS = {
    # name: (module, one line for --help), in the order a newcomer needs them
    "demo": (
        "perago.cli.demo",
        "The whole thing on this machine, a crash and its recovery included.",
    ),
    "init": ("perago.cli.init", "Make a new project with a task, a pipeline and a test."),
    "check": ("perago.cli.check", "Validate task modules, pipelines and workflows."),
    "run": ("perago.cli.run", "Run a pipeline, or resume one."),
    "start": ("perago.cli.start", "Serve Conductor with the tasks of some modules."),
    "runs": ("perago.cli.runs", "List runs, or inspect one with its attempts and logs."),
    "cancel": ("perago.cli.cancel", "End a run for good."),
    "recover": (
        "perago.cli.recover",
        "Go on after a run that stopped, from the branch as it is now.",
    ),
    "history": ("perago.cli.history", "Show what was published to a branch, by which attempt."),
    "diff": ("perago.cli.diff", "Show how two commits differ."),
    "import": ("perago.cli.import_", "Commit a directory's files to a branch."),
    "export": ("perago.cli.export", "Write a commit's files to a directory."),
    "extract": ("perago.cli.extract", "Write Conductor task and workflow definitions as JSON."),
    "register": ("perago.cli.register", "Push those definitions to Conductor."),
    "budget": ("perago.cli.budget", "Propose publish budgets from how long publications took."),
    "gc": ("perago.cli.gc", "Remove what crashed attempts left and bytes nothing refers to."),
    "verify": ("perago.cli.verify", "Re-hash everything in the store."),
    "doctor": ("perago.cli.doctor", "Find out what is misconfigured, and how to fix it."),
    "fence": ("perago.cli.fence", "Have lakeFS compare heads itself; prove that it does."),
    "stack": ("perago.cli.stack", "Real servers on this machine, without Docker."),
    "completion": ("perago.cli.completion", "Print the shell completion script."),
}

UNEXPECTED_EXIT_CODE = 70


class LazyGroup(click.Group):
    """Imports a command's module only to run it, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        command: click.Command = importlib.import_module(module).command
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
    """Typed Python tasks on versioned data, published once, fenced, or not at all.

    Try 'perago demo' first. Every command takes --json for programs and --help.
    """


def main(argv: list[str] | None = None) -> None:
    """Entry point: runs a command and turns whatever it raises into a message and an exit code."""
    arguments: Any = sys.argv[1:] if argv is None else argv
    try:
        code = cli.main(arguments, prog_name="perago", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted")
        code = 130
    except Exception as error:  # noqa: BLE001 - the last place where it can be told to a person
        code = _tell_failure(error, arguments)
    sys.exit(code if isinstance(code, int) else 0)


def _tell_failure(error: Exception, arguments: list[str]) -> int:
    from perago.cli.failures import exit_code_for, show_failure

    show_failure(error, as_json="--json" in arguments, debug="--debug" in arguments)
    return exit_code_for(error)
