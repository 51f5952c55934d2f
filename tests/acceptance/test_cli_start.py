"""Help, errors and exit codes: what every command has in common."""

import json
import subprocess
import sys

import pytest

from perago import errors
from perago.cli.failures import EXIT_CODES, exit_code_for
from perago.cli.main import COMMANDS


def _all_errors(kind=errors.PeragoError):
    yield kind
    for sub in kind.__subclasses__():
        yield from _all_errors(sub)


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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_debug(perago, command):
    answer = perago(command, "--help")
    assert answer.code == 0
    assert "--json" in answer.out
    assert "--debug" in answer.out


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo", "run"}))
def test_the_help_of_a_command_documents_its_json(perago, command):
    assert "JSON" in perago(command, "--help").out.partition("Options:")[0]


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
        (errors.RunFailedError, 1),
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


def test_a_wrong_setting_is_named_with_its_value(perago, monkeypatch):
    monkeypatch.setenv("PERAGO_PUBLISH_FENCE", "exactly-once")
    answer = perago("runs")
    assert answer.code == 2
    assert "PERAGO_PUBLISH_FENCE=exactly-once" in answer.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(perago, shell):
    assert "_PERAGO_COMPLETE" in perago("completion", shell).out
    document = perago("completion", shell, "--json").json
    assert document["shell"] == shell
    assert "perago" in document["script"]
