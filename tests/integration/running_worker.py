"""One worker, from outside: its processes, what it says, and how it ends."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

from living_processes import children_of, command_of, is_stopped, processes_with, until

_LONGEST_SECONDS = 90.0


class Worker:
    """One ``perago start``, and everything below it."""

    def __init__(self, number, directory, command, environment):
        self.home = environment["PERAGO_HOME"]
        self._listens_at = environment.get("PERAGO_LISTEN")
        self._frozen = []
        self._out, self._err = (directory / f"worker-{number}.{end}" for end in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    # --- its processes ----------------------------------------------------------------------------
    @property
    def pid(self):
        """The supervisor's."""
        return self._process.pid

    @property
    def poller(self):
        return until(lambda: self._below("perago.worker.poller"), "a poller")[0]

    @property
    def executors(self):
        return self._below("perago.worker.executor")

    def _below(self, module):
        return [pid for pid in children_of(self.pid) if f"-m {module}" in command_of(pid)]

    def stopped_executor(self):
        """The executor that a failpoint has stopped, once it has."""
        return until(
            lambda: [pid for pid in self.executors if is_stopped(pid)],
            lambda: f"an executor to stop\n{self}",
        )[0]

    # --- what it says -----------------------------------------------------------------------------
    def __str__(self):
        return f"worker {self.pid} said:\n{self.said}"

    @property
    def said(self):
        return self._err.read_text(errors="replace")

    @property
    def printed(self):
        return self._out.read_text(errors="replace")

    @property
    def _lines(self):
        return [line for line in self.said.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def events(self):
        return [json.loads(line) for line in self._lines if line.startswith("{")]

    @property
    def noise(self):
        """Lines that are no JSON: nothing of the kind belongs there."""
        return [line for line in self._lines if not line.startswith("{")]

    def heard(self, event, **fields):
        """The lines of an event, with these fields in them."""
        return [
            line
            for line in self.events
            if line.get("event") == event and fields.items() <= line.items()
        ]

    def wait_for(self, event, **fields):
        """The first line of an event."""
        return until(
            lambda: self.heard(event, **fields), lambda: f"a line {event} {fields}\n{self}"
        )[0]

    def wait_for_step(self, run_id, step, **fields):
        """The first event of a step in its own log of a run, which needs no supervisor."""
        log = Path(self.home) / "logs" / run_id / "events.jsonl"

        def found():
            lines = log.read_text().splitlines(keepends=True)
            events = [json.loads(line) for line in lines if line.endswith("\n")]
            return [e for e in events if e["step"] == step and fields.items() <= e.items()]

        return until(found, lambda: f"a step {step} {fields}\n{log.read_text()}")[0]

    @property
    def readiness(self):
        """What it answers to one who asks whether it takes work; it has to be listening."""
        connection = HTTPConnection(self._listens_at, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().read().decode().strip()
        except OSError:
            return "silent"
        finally:
            connection.close()

    # --- how it ends ------------------------------------------------------------------------------
    def send(self, number):
        self._process.send_signal(number)

    def ask_to_stop(self):
        """SIGTERM; returns once that was noticed."""
        self.send(signal.SIGTERM)
        until(lambda: self.readiness in ("stopping", "silent"), "it to notice the signal")

    def kill(self):
        """End the supervisor as a crash would."""
        self._process.kill()
        self._process.wait()

    def resume(self, executor):
        os.kill(executor, signal.SIGCONT)

    def freeze(self):
        """Stop all of its processes, the supervisor first, as a machine that stands still."""
        self._frozen = [self.pid, *self._below("perago.worker")]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(map(is_stopped, self._frozen)), "all of its processes to stand still")

    def thaw(self):
        for pid in reversed(self._frozen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self):
        """SIGTERM, and the seconds until it has ended, which it does well."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        assert self.end() == 0, str(self)
        return time.monotonic() - began

    def end(self, seconds=60.0):
        """Wait for it to end; its exit code."""
        until(lambda: self._process.poll() is not None, lambda: f"its end\n{self}", seconds=seconds)
        return self._process.returncode

    def reap(self):
        """Have nothing of it left, whatever it is at."""
        for pid in processes_with("PERAGO_HOME", self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class HeldExchange:
    """A fault of a wire: a request that is held on its way, or whose answer is, until released."""

    def __init__(self, when="before"):
        self._when = when
        self._held, self._released = threading.Event(), threading.Event()

    def __call__(self, exchange):
        if self._when == "before":
            exchange.keep_body()
            self._hold()
            exchange.reply(exchange.forward())
        else:
            answer = exchange.forward().keep()
            self._hold()
            exchange.reply(answer)

    def _hold(self):
        self._held.set()
        self._released.wait(_LONGEST_SECONDS)

    @property
    def is_held(self):
        return self._held.is_set()

    def release(self):
        self._released.set()
