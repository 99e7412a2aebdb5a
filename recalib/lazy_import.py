"""Modules that are loaded when they are first used: pyarrow takes a tenth of a second and 40 MB."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Lazily"]


class Lazily:
    """Stands for a module, and loads it when one of its names is first asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
