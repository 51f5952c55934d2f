"""Ctrl-C as something to ask about, and what is left of it afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from perago.worker.signals import StopSignal, ignore_ctrl_c


@pytest.fixture(autouse=True)
def handlers():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_first_one_waits_out_the_grace_and_a_second_one_does_not():
    with StopSignal().watched() as stop_signal:
        assert not stop_signal.is_due(0)
        signal.raise_signal(signal.SIGINT)
        assert stop_signal.came
        assert stop_signal.is_due(0)
        assert not stop_signal.is_due(600)
        signal.raise_signal(signal.SIGTERM)
        assert stop_signal.is_due(600)


def test_undisturbed_everything_is_as_before():
    with StopSignal().watched():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_pressing_on_does_not_cost_the_account_of_what_was_stopped():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal().watched():
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


PRESSED_WHILE_PYTHON_ENDS = """
import os, signal, sys
from perago.worker.signals import StopSignal

class AtTheVeryEnd:
    def __del__(self, press=os.kill, pid=os.getpid(), number=signal.SIGINT):
        press(pid, number)

at_the_very_end = AtTheVeryEnd()  # goes with the modules: handlers written in Python went before
with StopSignal().watched():
    signal.raise_signal(signal.SIGINT)
sys.exit(130)
"""


def test_pressing_on_does_not_cost_the_exit_code():
    ended = subprocess.run([sys.executable, "-c", PRESSED_WHILE_PYTHON_ENDS], check=False)
    assert ended.returncode == 130


SIGINT_OF_A_CHILD = "import signal; print(signal.getsignal(signal.SIGINT).__name__)"


def test_an_ignored_ctrl_c_stays_ignored_and_sigterm_still_stops():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignal().watched() as stop_signal:
        signal.raise_signal(signal.SIGINT)
        assert not stop_signal.came
        signal.raise_signal(signal.SIGTERM)
        assert stop_signal.came
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("is_executor", [True, False], ids=["executor", "supervisor"])
def test_programs_that_are_started_do_not_inherit_an_ignored_ctrl_c(is_executor):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    command = [sys.executable, "-c", SIGINT_OF_A_CHILD]
    if is_executor:
        ignore_ctrl_c()
        started = subprocess.run(command, check=True, capture_output=True, text=True)
    else:
        with StopSignal().watched():
            started = subprocess.run(command, check=True, capture_output=True, text=True)
    assert started.stdout.strip() == "default_int_handler"
