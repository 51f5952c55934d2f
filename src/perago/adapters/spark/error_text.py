"""What Spark's exceptions say, without the plan and the JVM's stack around it.

Read from their text: the same failure comes as a Java error, as PySpark's own exception or through
Spark Connect, and only the text is alike.
"""

from __future__ import annotations

import logging
import re

_CONDITION = re.compile(
    r"\[(?P<name>[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ?(?P<message>.*?)"
    r"(?: *SQLSTATE: (?P<state>\w{5})|(?=\n\s+at )|(?=\n+== SQL)|(?=\n+JVM stacktrace:)|\Z)",
    re.DOTALL,
)
_STACK = re.compile(r"\n\s+at .*|\n+JVM stacktrace:.*", re.DOTALL)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_PYTHON_ERROR = re.compile(r"^(?!Traceback)[\w.]+(?::[^\n]*)?$", re.MULTILINE)
_CALL = re.compile(r"\AAn error occurred while calling \S+\n: ")
_JAVA_NAME = re.compile(r"\A(?:[a-z]\w*\.)+(?P<simple>[A-Z][\w$]*)(?:: |\Z)")
_TASK = re.compile(
    r"\AJob aborted due to stage failure: .*?most recent failure: Lost task [^:]*executor [^:]*: ",
    re.DOTALL,
)
# By SQLSTATE: data exceptions, raise_error and the like, names and syntax …
_OF_EXPRESSIONS = ("22", "P0", "42")
# … and data sources, no such path, nothing to infer a schema from.
_OF_READING = "KD"
_OF_FILES = (_OF_READING, "42K03", "42KD9")
_OUTAGE = re.compile(
    r"java\.net\.|javax\.net\.|SocketTimeout|ConnectTimeout|UnknownHost|NoHttpResponse"
    r"|SdkClientException|AWSStatus5|AWSNoResponse|Throttled|ServiceUnavailable|AccessDenied"
)
_LENGTH = 600


def short_message(error: BaseException) -> str | None:
    """The one line that matters, with Spark's name of the condition; None if it isn't Spark's."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    found = _condition(text)
    said = f"[{found['name']}] {found['message']}" if found else _plain(text)
    line = " ".join(said.split())
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"


def condition(error: BaseException) -> str | None:
    """Spark's name of what went wrong, such as ``DIVIDE_BY_ZERO``. It has no value of the data."""
    found = _condition(str(error))
    return found["name"] if found else None


def is_expression_error(error: BaseException) -> bool:
    """Whether an expression, or the data that it met, is wrong: it would be so again."""
    return _state(error).startswith(_OF_EXPRESSIONS)


def is_file_error(error: BaseException) -> bool:
    """Whether the files aren't there, or aren't what they should be, whoever reads them."""
    state, told = _state(error), _with_causes(error)
    if not state.startswith(_OF_FILES):
        return False
    if told is None:  # what failed at reading may be anybody's fault
        return not state.startswith(_OF_READING)
    return not _OUTAGE.search(told)


def _with_causes(error: BaseException) -> str | None:
    """All that is known of it; None if its causes aren't.

    Over Spark Connect they aren't in its text, and a server doesn't keep them for long.
    """
    trace = getattr(error, "getStackTrace", None)
    if trace is None:
        return str(error)
    return f"{error}\n{told}" if (told := trace()) else None


def _state(error: BaseException) -> str:
    found = _condition(str(error))
    return (found["state"] or "") if found else ""


def _condition(text: str) -> re.Match[str] | None:
    return next(
        (found for found in _CONDITION.finditer(text) if not found["name"].startswith("_LEGACY")),
        None,
    )


def _plain(text: str) -> str:
    """The line that matters where Spark has no name for the condition."""
    if "Traceback (most recent call last)" in text:
        traceback = text.rpartition("Traceback (most recent call last)")[2]
        lines = _PYTHON_ERROR.findall(_STACK.sub("", traceback))
        if lines:
            return str(lines[-1])
    if causes := _CAUSE.findall(text):
        return _message(causes[-1])
    said = _CALL.sub("", _STACK.sub("", text).strip())
    return _message(_TASK.sub("", _message(said)))


def _message(said: str) -> str:
    """What a Java exception says; with its name if it says one word, such as a class, or none."""
    named = _JAVA_NAME.match(said)
    if named is None:
        return said
    message = said[named.end() :]
    if " " in message.strip():
        return message
    return f"{named['simple']}: {message}" if message else named["simple"]


def silence_query_logger() -> None:
    """Keep PySpark from printing errors it raises as well: they may show values of the data."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
