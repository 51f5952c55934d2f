"""Harnesses and rigs that tests of several folders share. Not part of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def slow_except(*kept: object, of: Sequence[object]) -> list[object]:
    """The values ``of`` a parametrization; `make test` runs it with ``kept`` alone."""
    return [value if value in kept else _slow(value) for value in of]


def _slow(value: object) -> object:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
