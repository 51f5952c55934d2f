"""Whose fault it is that Spark failed, by what its errors say."""

import pytest

from perago.adapters.spark.error_text import is_file_error

READING = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001"
NOT_FOUND = "[PATH_NOT_FOUND] Path does not exist: p. SQLSTATE: 42K03"
BROKEN = "Caused by: java.lang.RuntimeException: f is not a Parquet file"
AWAY = "Caused by: java.net.SocketException: Connection reset"


class OverConnect(Exception):
    """An error that has its causes outside of its text, if at all."""

    def __init__(self, text, causes):
        super().__init__(text)
        self.getStackTrace = lambda: causes


@pytest.mark.parametrize(
    ("error", "of_files"),
    [
        (Exception(f"{READING}\n{BROKEN}"), True),
        (Exception(f"{READING}\n{AWAY}"), False),
        (OverConnect(READING, BROKEN), True),
        (OverConnect(READING, AWAY), False),
        (OverConnect(READING, None), False),
        (OverConnect(NOT_FOUND, None), True),
        (Exception("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), False),
        (Exception("no condition at all"), False),
    ],
)
def test_files_are_blamed_only_where_nothing_else_can_be_the_cause(error, of_files):
    assert is_file_error(error) is of_files
