"""Short texts of Spark's errors, without the plan and the JVM's stack around them.

They are parsed from the message: the same failure comes as a Java error, as PySpark's own
exception or through Spark Connect, and only the text is the same.
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
_EXPRESSION_STATES = ("22", "P0", "42")
# … and data sources, no such path, no schema to infer.
_READING_STATE = "KD"
_FILE_STATES = (_READING_STATE, "42K03", "42KD9")
_OUTAGE = re.compile(
    r"java\.net\.|javax\.net\.|SocketTimeout|ConnectTimeout|UnknownHost|NoHttpResponse"
    r"|SdkClientException|AWSStatus5|AWSNoResponse|Throttled|ServiceUnavailable|AccessDenied"
)
_LENGTH = 600


def short_message(error: BaseException) -> str | None:
    """Return the one line that matters, with Spark's condition; None if it isn't Spark's error."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    found = _find_condition(text)
    message = f"[{found['name']}] {found['message']}" if found else _plain_message(text)
    line = " ".join(message.split())
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"


def condition_name(error: BaseException) -> str | None:
    """Return Spark's name of the error, such as ``DIVIDE_BY_ZERO``, which quotes no data."""
    found = _find_condition(str(error))
    return found["name"] if found else None


def is_expression_error(error: BaseException) -> bool:
    """Whether an expression, or the data it was applied to, is wrong: a retry fails again."""
    return _sql_state(error).startswith(_EXPRESSION_STATES)


def is_file_error(error: BaseException) -> bool:
    """Whether the files are missing or damaged, and not only unreachable for the moment."""
    state, text = _sql_state(error), _text_with_causes(error)
    if not state.startswith(_FILE_STATES):
        return False
    if text is None:  # a failure to read may also be an outage
        return not state.startswith(_READING_STATE)
    return not _OUTAGE.search(text)


def silence_query_logger() -> None:
    """Keep PySpark from logging the errors it raises: they may show values of the data."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def _text_with_causes(error: BaseException) -> str | None:
    """Return the message with its causes; None if they are unknown.

    Over Spark Connect the causes aren't in the message, and the server keeps them only for a while.
    """
    get_stack_trace = getattr(error, "getStackTrace", None)
    if get_stack_trace is None:
        return str(error)
    return f"{error}\n{trace}" if (trace := get_stack_trace()) else None


def _sql_state(error: BaseException) -> str:
    found = _find_condition(str(error))
    return (found["state"] or "") if found else ""


def _find_condition(text: str) -> re.Match[str] | None:
    return next(
        (found for found in _CONDITION.finditer(text) if not found["name"].startswith("_LEGACY")),
        None,
    )


def _plain_message(text: str) -> str:
    """Return the line that matters where Spark has no name for the error."""
    if "Traceback (most recent call last)" in text:
        traceback = text.rpartition("Traceback (most recent call last)")[2]
        lines = _PYTHON_ERROR.findall(_STACK.sub("", traceback))
        if lines:
            return str(lines[-1])
    if causes := _CAUSE.findall(text):
        return _java_message(causes[-1])
    message = _CALL.sub("", _STACK.sub("", text).strip())
    return _java_message(_TASK.sub("", _java_message(message)))


def _java_message(text: str) -> str:
    """Return a Java exception's message, with its class if the message has at most one word."""
    named = _JAVA_NAME.match(text)
    if named is None:
        return text
    message = text[named.end() :]
    if " " in message.strip():
        return message
    return f"{named['simple']}: {message}" if message else named["simple"]
