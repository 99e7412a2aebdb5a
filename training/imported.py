"""Import of a user's function by name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from recalib.errors import InputError


def import_function(name: str, field: str) -> Callable[..., Any]:
    """Return the function or class `package.module:function` or `path/to/file.py:function`.

    The function may be an attribute of a class, as in `transformers:AutoModel.from_pretrained`.
    Importing runs the user's code.

    Raises
    ------
    InputError: for `field`; the module or the function is not there, or cannot be called.
    """
    place, _, attribute = name.rpartition(":")
    try:
        is_file = place.endswith(".py")
        module = _from_file(Path(place)) if is_file else importlib.import_module(place)
        function: Callable[..., Any] = attrgetter(attribute)(module)
    except Exception as error:  # the user's module may raise any
        accepted = "package.module:function of an installed package or of one in PYTHONPATH, or "
        accepted += "file.py:function"
        raise InputError(field, found=f"{name}: {error}", accepted=accepted) from error
    if not callable(function):
        found = f"{name}, a {type(function).__name__}"
        raise InputError(field, found=found, accepted="a function or a class")
    return function


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
