"""``perago init`` and ``perago completion``: set up a project, and a shell."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perago.cli.options import common
from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from perago.cli.output import Output
    from perago.settings import Settings


_TEMPLATES = Path(__file__).parent / "templates" / "init"
_FILES = {
    # path in the project: its template
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "{{package}}/__init__.py": None,
    "{{package}}/tasks.py": "tasks.py.txt",
    "tests/test_tasks.py": "test_tasks.py.txt",
    "data/songs/raw/songs.csv": "songs.csv.txt",
}


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="The project's name.  [default: the directory's name]")
@common
def command(*, directory: Path, name: str | None, output: Output, settings: Settings) -> None:
    """Create a project in DIRECTORY: two tasks, a pipeline, tests for them and some data.

    \b
    JSON: {"directory", "name", "package", "files": [path], "next": [command]}
    """
    from rich.text import Text

    del settings
    name = name or directory.resolve().name
    package = package_name(name)
    files = render(name, package)
    write_project(directory, files)
    steps = _next_steps(directory, package)
    document = {
        "directory": str(directory.resolve()),
        "name": name,
        "package": package,
        "files": list(files),
        "next": steps,
    }
    lines = [
        f"created {directory}: {', '.join(files)}",
        "",
        "next:",
        *(f"  {step}" for step in steps),
    ]
    if find_spec("pytest") is None:
        lines.append("  (the second command needs pytest, which isn't installed here)")
    output.show(document, lambda: Text("\n".join(lines)))


def package_name(name: str) -> str:
    """A project's Python package. Raises RuntimeConfigError for a name that can't be one."""
    package = name.replace("-", "_")
    problem = None
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        problem = "use lower-case letters, digits and '-', and begin with a letter"
    elif keyword.iskeyword(package):
        problem = "it is a Python keyword"
    elif package in sys.stdlib_module_names or package in ("perago", "pydantic", "pytest", "tests"):
        problem = "it would hide an existing module of that name"
    if problem:
        raise RuntimeConfigError(
            f"{name!r} can't be a project's name: {problem}",
            fix="give another one: --name my-songs",
        )
    return package


def render(name: str, package: str) -> dict[str, str]:
    """Every file of the project by its path."""

    def fill(text: str) -> str:
        return text.replace("{{package}}", package).replace("{{name}}", name)

    return {
        fill(path): fill((_TEMPLATES / template).read_text(encoding="utf-8")) if template else ""
        for path, template in _FILES.items()
    }


def write_project(directory: Path, files: dict[str, str]) -> None:
    """Write the files. Raises RuntimeConfigError for a directory that isn't empty or writable."""
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise RuntimeConfigError(
                f"{str(directory)!r} is not an empty directory",
                fix="name a new one: existing files are never overwritten",
            )
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RuntimeConfigError(
            f"can't write to {str(directory)!r}: {error.strerror}",
            fix="name a directory this user can write",
        ) from error


def _next_steps(directory: Path, package: str) -> list[str]:
    """Commands that work as they are, even if this environment is not active in the shell."""
    beside = Path(sys.executable).with_name("perago")
    perago = str(beside) if beside.exists() else "perago"
    return [
        f"cd {directory}",
        f"{sys.executable} -m pytest",
        f"{perago} run {package}.tasks --from data",
        f"{perago} history",
    ]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion_command(*, shell: str, output: Output, settings: Settings) -> None:
    """Print the completion script for a shell.

    \b
    bash: eval "$(perago completion bash)"        in ~/.bashrc
    zsh:  eval "$(perago completion zsh)"         in ~/.zshrc
    fish: perago completion fish > ~/.config/fish/completions/perago.fish

    \b
    JSON: {"shell", "script"}
    """
    from click.shell_completion import get_completion_class
    from rich.text import Text

    from perago.cli.main import cli

    del settings
    kind = get_completion_class(shell)
    if kind is None:  # the choice above lists what click has; a plugin could have taken it away
        raise click.UsageError(f"click has no completion for {shell}.")
    script = kind(cli, {}, "perago", "_PERAGO_COMPLETE").source()
    output.show({"shell": shell, "script": script}, lambda: Text(script))
