"""Public: run a task in a test with no server, conformance suites, fault injection.

``run_task`` and ``TaskTrial`` are what task authors need; the rest is for adapter authors.
"""

from perago.adapters.local.faults import InjectedFaults, parse_faults
from perago.testing.bench import Bench
from perago.testing.clock import ManualClock
from perago.testing.journal import RecordingJournal
from perago.testing.trial import TaskTrial, run_task

__all__ = [
    "Bench",
    "InjectedFaults",
    "ManualClock",
    "RecordingJournal",
    "TaskTrial",
    "parse_faults",
    "run_task",
]
