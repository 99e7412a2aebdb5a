"""Modules that are imported on first use: pyarrow takes 0.1 s and 40 MB, torch more than 1 s."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from recalib.core.packages import optional_packages

T = TypeVar("T")


class LazyModule:
    """A proxy for a module; the first access to one of its names imports the module.

    Raises
    ------
    PackageError: an access, if the package is not installed.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        with optional_packages("recalib"):
            module = importlib.import_module(self._module)
        return getattr(module, name)


class LazyClasses(Mapping[str, type[T]], Generic[T]):
    """Classes by name, each imported when it is looked up.

    Parameters
    ----------
    package: the package that contains the modules.
    paths: name to ``module:class``.
    """

    def __init__(self, package: str, paths: Mapping[str, str]) -> None:
        self._package = package
        self._paths = paths

    def __getitem__(self, name: str) -> type[T]:
        module, class_name = self._paths[name].split(":")
        with optional_packages(self._package):
            members = importlib.import_module(f"{self._package}.{module}")
        return getattr(members, class_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
