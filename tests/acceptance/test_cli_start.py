"""Help, errors and exit codes: what every command has in common."""

import json
import subprocess
import sys

import click
import pytest

from perago import errors
from perago.cli.main import COMMANDS, EXIT_CODES, cli, exit_code_for


def _all_errors(kind=errors.PeragoError):
    yield kind
    for sub in kind.__subclasses__():
        yield from _all_errors(sub)


def _leaves():
    """Every command that does something, as it is typed."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, click.Group):
            yield from (f"{name} {below}" for below in command.commands)
        else:
            yield name


def test_help_lists_every_command_and_imports_neither_pydantic_nor_rich():
    script = (
        "import sys\n"
        "from perago.cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n"
        "    print([m for m in ('pydantic', 'rich', 'sqlite3') if m in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for command in COMMANDS:
        assert f"  {command} " in ended.stdout
    assert ended.stdout.endswith("[]\n")


@pytest.mark.parametrize("command", list(_leaves()))
def test_every_command_has_help_json_and_debug(perago, command):
    answer = perago(*command.split(), "--help")
    assert answer.code == 0
    assert "--json" in answer.out
    assert "--debug" in answer.out


@pytest.mark.parametrize("command", sorted(set(_leaves()) - {"demo", "run"}))
def test_the_help_of_a_command_documents_its_json(perago, command):
    assert "JSON" in perago(*command.split(), "--help").out.partition("Options:")[0]


def test_an_unknown_command_gets_a_suggestion(perago):
    answer = perago("hystory")
    assert answer.code == 2
    assert "Did you mean 'history'?" in answer.err


@pytest.mark.parametrize("kind", sorted(set(_all_errors()), key=lambda kind: kind.__name__))
def test_every_error_has_an_exit_code_that_is_documented(kind):
    code = exit_code_for(kind("something", fix="something else"))
    meaning, kinds = EXIT_CODES[code]
    assert meaning
    assert issubclass(kind, kinds)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.TaskDefinitionError, 2),
        (errors.RuntimeConfigError, 2),
        (errors.RunNotFoundError, 3),
        (errors.CommitNotFoundError, 3),
        (errors.BranchBusyError, 4),
        (errors.HeadMovedError, 4),
        (errors.PublishFenceError, 4),
        (errors.CorruptObjectError, 5),
        (errors.PublishUnknownError, 5),
        (errors.OrchestratorUnavailableError, 5),
        (errors.RunError, 1),
        (errors.UnsupportedFileError, 1),
        (ValueError, 70),
    ],
)
def test_exit_codes_say_what_kind_of_failure_it_was(kind, code):
    assert exit_code_for(kind("something")) == code


def test_an_error_names_the_fix_and_shows_no_traceback(perago):
    answer = perago("history")
    assert answer.code == 3
    assert "error: the store has no repository yet" in answer.err
    assert "fix: " in answer.err
    assert "Traceback" not in answer.err


def test_debug_shows_the_traceback(perago):
    assert "Traceback" in perago("history", "--debug").err


def test_with_json_the_error_is_json_too(perago):
    answer = perago("history", "--json")
    assert answer.out == ""
    assert json.loads(answer.err)["error"]["code"] == "repository_not_found"


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (("runs", "--nope"), "--nope", "perago runs"),
        (("runs", "--logs"), "--logs needs a RUN", "perago runs"),
        (("demo", "--rows", "0"), "--rows", "perago demo"),
        (("run",), "Name a pipeline", "perago run"),
        (("run", "songs_tasks", "--param", "count"), "TASK.FIELD=VALUE", "perago run"),
        (("hystory",), "Did you mean 'history'?", "perago"),
    ],
)
def test_with_json_wrong_usage_is_json_too(perago, arguments, message, command):
    answer = perago(*arguments, "--json")
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == "usage"
    assert message in error["message"]
    assert f"`{command} --help`" in error["fix"]


def test_without_json_wrong_usage_shows_how_it_is_used(perago):
    answer = perago("runs", "--nope")
    assert answer.code == 2
    assert answer.err.startswith("Usage: perago runs")
    assert "--nope" in answer.err


def test_a_wrong_setting_is_named_with_its_value(perago, monkeypatch):
    monkeypatch.setenv("PERAGO_PUBLISH_FENCE", "exactly-once")
    answer = perago("runs")
    assert answer.code == 2
    assert "PERAGO_PUBLISH_FENCE=exactly-once: 'exactly-once' isn't available yet" in answer.err


@pytest.mark.parametrize(
    ("failpoints", "problem"),
    [
        ("publish.snet=kill", "failpoint 'publish.snet' doesn't exist"),
        ("publish.sent=kil", "action 'kil' doesn't exist"),
        ("publish.sent=delay:long", "can't take 'long'"),
    ],
)
def test_wrong_failpoints_are_refused_before_a_run_is_made(
    perago, monkeypatch, queue, failpoints, problem
):
    monkeypatch.setenv("PERAGO_FAILPOINTS", failpoints)
    answer = perago("run", "songs_tasks", "--from", "data", "--json")
    assert answer.code == 2
    assert answer.error["code"] == "runtime_config"
    assert f"PERAGO_FAILPOINTS={failpoints}: " in answer.error["message"]
    assert problem in answer.error["message"]
    assert queue.runs() == []


def test_the_help_of_the_demo_names_one_default_home(perago):
    out = " ".join(perago("demo", "--help").out.split())
    assert "[default: ./perago-demo]" in out
    assert ".perago]" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(perago, shell):
    assert "_PERAGO_COMPLETE" in perago("completion", shell).out
    document = perago("completion", shell, "--json").json
    assert document["shell"] == shell
    assert "perago" in document["script"]
