"""Harnesses and rigs that tests of several folders share. Not part of the package."""

import pytest


def slow_except(*kept, of):
    """The values ``of`` a parametrization; `make test` runs it with ``kept`` alone."""
    return [value if value in kept else _slow(value) for value in of]


def _slow(value):
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
