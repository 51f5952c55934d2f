"""One Conductor for all the processes of a test run: it takes long to start, and much memory."""

from contextlib import contextmanager

from perago.file_lock import locked
from perago.stack.server import read_record, stop
from perago.stack.test_server import start_conductor

ADDRESS_VARIABLE = "PERAGO_TEST_CONDUCTOR"
"""Names a server that is up already, for who runs a few tests again and again."""

STARTS_SOONER = ("-XX:TieredStopAtLevel=1",)
"""For Java: half the work of a start, and slower work later."""


@contextmanager
def shared_conductor(directory):
    """Its API's address. The first process starts it, the last one ends it."""
    users, server = directory / "users", directory / "server"
    with locked(directory / "lock"):
        count = _read(users)
        if count == 0:
            start_conductor(server)
        users.write_text(str(count + 1))
    try:
        yield read_record(server).health_url.replace("/health", "/api")
    finally:
        with locked(directory / "lock"):
            left = _read(users) - 1
            users.write_text(str(left))
            if left == 0:
                stop(server)


def _read(users):
    return int(users.read_text()) if users.exists() else 0
