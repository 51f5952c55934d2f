"""Public names that are imported on first use, so that importing a package costs nothing."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def import_export(package: str, homes: Mapping[str, tuple[str, ...]], name: str) -> object:
    """Import ``name`` from the module that ``homes`` lists it under, and keep it in ``package``.

    For a package's ``__getattr__``. Raises AttributeError for a name that isn't listed.
    """
    for module, names in homes.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            setattr(sys.modules[package], name, value)
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
