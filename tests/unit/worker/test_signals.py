"""Ctrl-C as something to ask about, and what is left of it afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from perago.worker.signals import StopSignal


@pytest.fixture(autouse=True)
def handlers():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_first_one_waits_out_the_grace_and_a_second_one_does_not():
    with StopSignal().watched() as interruption:
        assert not interruption.is_due(0)
        signal.raise_signal(signal.SIGINT)
        assert interruption.came
        assert interruption.is_due(0)
        assert not interruption.is_due(600)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.is_due(600)


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
