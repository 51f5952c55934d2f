"""The pytest plugin: ``perago_run_task`` without an import.

Nothing heavy is imported here: pytest loads this for every test session on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from perago.testing.trial import TaskTrial


@pytest.fixture
def perago_run_task() -> Callable[..., TaskTrial]:
    """:func:`perago.testing.run_task`, as a fixture."""
    from perago.testing.trial import run_task

    return run_task
