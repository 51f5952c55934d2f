"""``perago doctor``: find what is misconfigured, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_options, with_backend_options
from perago.errors import RuntimeConfigError
from perago.formatting import count
from perago.settings import is_secret

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.doctor.finding import Finding
    from perago.settings import Settings


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--repository", "-r", help="With --on lakefs: try what a worker does on this repository."
)
@click.option(
    "--branch",
    help="With --repository: the branch to publish to. It isn't changed.  "
    "[default: the repository's default branch]",
)
@common_options(on=True)
def command(
    *,
    targets: tuple[str, ...],
    repository: str | None,
    branch: str | None,
    output: Output,
    settings: Settings,
) -> int:
    """Check Python, disks, locks, store, queue, Spark and settings. Exit code 1 if a check fails.

    With --on lakefs, also check the connection, the clock and the key; with --repository the
    branch, the permissions and the fence. What a worker does is tried on two hidden branches, which
    are removed.

    With --on conductor, also check the connection, tasks that wait while no worker polls for them,
    and branches that several workflows write; with MODULES, whether their tasks are registered as
    declared, have workers, and have leases that cover their publish budgets.

    On a Spark Connect server (SPARK_REMOTE), check its committer; with --repository, whether it can
    read the repository.

    \b
    JSON: {"ok": bool, "checks": [{name, verdict: "ok" | "warn" | "fail", detail, fix}],
      "settings": [{name, value,
        source: "command line" | "environment" | ".env" | "stack" | "default"}]}
    """
    from perago.doctor.machine import diagnose

    findings = list(diagnose(settings))
    if settings.store == "lakefs":
        from perago.doctor.lakefs import diagnose_lakefs

        findings += diagnose_lakefs(settings, repository, branch)
    elif repository is not None:
        raise RuntimeConfigError(
            f"--repository {repository}: the embedded store has nothing to try",
            fix="leave it out, or add `--on lakefs`",
        )
    if settings.orchestrator == "conductor":
        from perago.doctor.conductor import diagnose_conductor
        from perago.operations.declared import load_declared

        findings += diagnose_conductor(settings, *map(load_declared, targets))
    elif targets:
        raise RuntimeConfigError(
            f"{targets[0]}: without Conductor there is nothing to compare it with",
            fix=f"leave it out, add `--on conductor`, or run `perago check {targets[0]}`",
        )
    from perago.doctor.spark import diagnose_spark

    findings += diagnose_spark(settings, repository)
    findings = [replace(f, fix=with_backend_options(f.fix)) if f.fix else f for f in findings]
    in_force = effective_settings(settings)
    failed = sum(finding.verdict == "fail" for finding in findings)
    document = {
        "ok": not failed,
        "checks": [asdict(finding) for finding in findings],
        "settings": in_force,
    }
    output.show(document, lambda: _layout(findings, in_force, failed))
    return 1 if failed else 0


def effective_settings(settings: Settings) -> list[dict[str, str]]:
    """Each setting with its value and where it comes from; a secret shows as asterisks."""
    from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource

    from perago.settings import STACK_SETTINGS, variable_of

    kind = type(settings)
    stack = DotEnvSettingsSource(kind, env_file=settings.stack / STACK_SETTINGS)
    sources = {
        "environment": EnvSettingsSource(kind)(),
        ".env": DotEnvSettingsSource(kind)(),
        "stack": stack(),
    }
    listed = []
    for name in kind.model_fields:
        variable, value = variable_of(name), getattr(settings, name)
        source = "default"
        if name in settings.model_fields_set:
            # A source lists a setting by its variable if that has a name of its own.
            texts = {one: found.get(variable, found.get(name)) for one, found in sources.items()}
            source = next(
                (one for one, text in texts.items() if text == _plain(value)),
                "environment" if name == "spark_conf" else "command line",
            )
        listed.append({"name": variable, "value": _shown(value), "source": source})
    return listed


def _plain(value: object) -> str:
    """A setting as the text that it was read from."""
    from pydantic import SecretStr

    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _shown(value: object) -> str:
    if isinstance(value, dict):  # Spark's own settings
        return ", ".join(f"{k}={'**********' if is_secret(k) else v}" for k, v in value.items())
    return "" if value is None else str(value)


def _layout(findings: list[Finding], in_force: list[dict[str, str]], failed: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.output import status, table

    rows = [
        (status(f.verdict), f.name, f.detail + (f"\nfix: {f.fix}" if f.fix else ""))
        for f in findings
    ]
    names = [(one["name"], one["source"], one["value"]) for one in in_force]
    warned = sum(finding.verdict == "warn" for finding in findings)
    summary = f"{count(len(findings), 'check')}, {count(warned, 'warning')}, {failed} failed"
    return Group(
        table(("", "check", "found"), rows, whole=2),
        Text(),
        table(("setting", "from", "value"), names, whole=2),
        Text(),
        Text(summary, style="red" if failed else "green"),
    )
