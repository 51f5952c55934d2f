"""``perago doctor``: what is misconfigured on this machine, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from perago.cli.options import common
from perago.cli.phrasing import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.diagnosis import Finding
    from perago.cli.options import Speaker
    from perago.settings import Settings


@click.command()
@common
def command(*, speaker: Speaker, settings: Settings) -> int:
    """Look at Python, disks, locks, store, queue and settings. Exit code 1 if anything fails.

    \b
    JSON: {"ok": bool, "checks": [{name, verdict: "ok" | "warn" | "fail", detail, fix}],
      "settings": [{name, value, source: "command line" | "environment" | ".env" | "default"}]}
    """
    from perago.cli.diagnosis import diagnose

    findings = list(diagnose(settings))
    in_force = settings_in_force(settings)
    failed = sum(finding.verdict == "fail" for finding in findings)
    document = {
        "ok": not failed,
        "checks": [asdict(finding) for finding in findings],
        "settings": in_force,
    }
    speaker.say(document, lambda: _layout(findings, in_force, failed))
    return 1 if failed else 0


def settings_in_force(settings: Settings) -> list[dict[str, str]]:
    """Each setting with its value and where it comes from; a secret shows as asterisks."""
    from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource

    kind = type(settings)
    environment, dotenv = EnvSettingsSource(kind)(), DotEnvSettingsSource(kind)()
    listed = []
    for name in kind.model_fields:
        value = getattr(settings, name)
        if name not in settings.model_fields_set:
            source = "default"
        elif name in environment and _is_from(settings, name, environment):
            source = "environment"
        elif name in dotenv and _is_from(settings, name, dotenv):
            source = ".env"
        else:
            source = "command line"
        shown = "" if value is None else str(value)
        listed.append({"name": f"PERAGO_{name.upper()}", "value": shown, "source": source})
    return listed


def _is_from(settings: Settings, name: str, source: dict[str, object]) -> bool:
    """Whether a source's raw text is what the setting was read from."""
    return str(source[name]) == str(getattr(settings, name))


def _layout(findings: list[Finding], in_force: list[dict[str, str]], failed: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.tables import status, table

    rows = [
        (status(f.verdict), f.name, f.detail + (f"\nfix: {f.fix}" if f.fix else ""))
        for f in findings
    ]
    names = [(one["name"], one["source"], one["value"]) for one in in_force]
    warned = sum(finding.verdict == "warn" for finding in findings)
    summary = f"{count(len(findings), 'check')}, {warned} to look at, {failed} failed"
    return Group(
        table(("", "check", "found"), rows, whole=2),
        Text(),
        table(("setting", "from", "value"), names, whole=2),
        Text(),
        Text(summary, style="red" if failed else "green"),
    )
