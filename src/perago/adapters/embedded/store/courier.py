"""Many small objects to as many new files: the innermost loop, here and in processes of its own.

Creating a file takes the system longer than copying it, and threads of one interpreter get in each
other's way between two short system calls. So a large delivery is shared with courier processes:
this very file, run as a script, which is why it imports nothing but the standard library. They are
started without the site's packages, in a hundredth of a second.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys

Job = tuple[str, str, int, str]
"""An object's file, the new file, and the size and sha256 the bytes must have."""

Stamp = tuple[int, int, int]
"""Of the new file: time of modification, time of change, inode; taken after its last byte."""

BATCH = 256
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotDelivered(Exception):
    """A job could not be done; its new file is not there. Doing it again tells why."""


def deliver(job: Job) -> Stamp:
    """Copy one object, verified. Raises NotDelivered."""
    source, target, size, sha256 = job
    try:
        data = _read(source, size)
    except OSError:
        raise NotDelivered from None
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise NotDelivered
    return _create(target, data)


def _read(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size + 1)  # one byte more, to see that it has not grown
    finally:
        os.close(descriptor)


def _create(path: str, data: bytes) -> Stamp:
    try:
        descriptor = os.open(path, _CREATE, 0o666)
    except OSError:
        raise NotDelivered from None
    try:
        if os.write(descriptor, data) == len(data):
            stat = os.fstat(descriptor)
            return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino
    except OSError:
        pass
    finally:
        os.close(descriptor)
    os.unlink(path)  # noqa: PTH108 - as everywhere in this loop
    raise NotDelivered


def main() -> None:
    """Do the jobs on standard input; stamps go to standard output, in order, in batches.

    Ends early at the first job that can't be done: whoever reads the stamps does the rest.
    """
    jobs: list[Job] = marshal.load(sys.stdin.buffer)  # noqa: S302 - from our own parent process
    out = sys.stdout.buffer
    for first in range(0, len(jobs), BATCH):
        stamps: list[Stamp] = []
        try:
            for job in jobs[first : first + BATCH]:
                stamps.append(deliver(job))  # noqa: PERF401 - what was done before one fails counts
        except NotDelivered:
            return
        finally:
            out.write(marshal.dumps(stamps))
            out.flush()


if __name__ == "__main__":
    main()
