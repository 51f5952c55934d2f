"""A large delivery of small objects, shared between this process and courier processes."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perago.adapters.embedded.store import courier
from perago.adapters.embedded.store.courier import NotDelivered, deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perago.adapters.embedded.store.courier import Job, Stamp

    Arrived = Callable[[int, Stamp], None]
    """Told of every job that was done, by its number; from one thread at a time or not."""

WORTH_A_PROCESS = 1_000
"""Jobs for each process: below that, starting one costs more than it saves."""

_MOST_PROCESSES = 4
_HEAD_START = 500  # what we get done while a courier is starting


def deliver_all(jobs: Sequence[Job], arrived: Arrived) -> list[int]:
    """Do all the jobs, in any order; the numbers of those that couldn't be done."""
    ours, theirs = _shares(len(jobs))
    failed: list[int] = []
    with _couriers(jobs, theirs, arrived) as couriers:
        for number in ours:
            _try(jobs, number, arrived, failed)
    for sent in couriers:
        for number in sent.not_done():
            with suppress(FileNotFoundError):  # begun, and not told of, by one that was killed
                os.unlink(jobs[number][1])  # noqa: PTH108 - a plain string
            _try(jobs, number, arrived, failed)
    return failed


def _shares(count: int) -> tuple[range, list[range]]:
    """The numbers of the jobs we do ourselves, and those of each courier."""
    processes = min(count // WORTH_A_PROCESS, len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if processes <= 1:
        return range(count), []
    theirs = (count - _HEAD_START) // processes
    first = count - theirs * (processes - 1)
    return range(first), [range(n, n + theirs) for n in range(first, count, theirs)]


def _try(jobs: Sequence[Job], number: int, arrived: Arrived, failed: list[int]) -> None:
    try:
        stamp = deliver(jobs[number])
    except NotDelivered:
        failed.append(number)
    else:
        arrived(number, stamp)


@dataclass(slots=True)
class _Courier:
    """A courier process with its share of the jobs, and the thread that hears from it."""

    share: range
    process: subprocess.Popen[bytes]
    done: int = field(default=0)
    listener: threading.Thread | None = field(default=None)

    def listen(self, arrived: Arrived) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it was opened with a pipe
        with suppress(EOFError, ValueError, TypeError):  # it ended, in the middle of a batch or not
            while True:
                for stamp in marshal.load(self.process.stdout):  # noqa: S302 - our own process
                    arrived(self.share[self.done], stamp)
                    self.done += 1

    def not_done(self) -> range:
        return self.share[self.done :]


@contextmanager
def _couriers(
    jobs: Sequence[Job], shares: Sequence[range], arrived: Arrived
) -> Iterator[list[_Courier]]:
    """Couriers at work while the block lasts, and waited for at its end; ended by an error."""
    couriers = [_Courier(share, _start([jobs[n] for n in share])) for share in shares]
    for sent in couriers:
        sent.listener = threading.Thread(target=sent.listen, args=(arrived,), daemon=True)
        sent.listener.start()
    try:
        yield couriers
    except BaseException:
        for sent in couriers:
            sent.process.kill()
        raise
    finally:
        for sent in couriers:
            if sent.listener is not None:
                sent.listener.join()
            if sent.process.stdout is not None:
                sent.process.stdout.close()
            sent.process.wait()


def _start(jobs: list[Job]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as orders:  # a pipe would make us wait until it reads them
        marshal.dump(jobs, orders)
        orders.seek(0)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", courier.__file__], stdin=orders, stdout=subprocess.PIPE
        )
