"""Settings from a TOML file: ``RECALIB_CONFIG=/etc/recalib.toml`` with lines ``port = 8000``.

Environment variables override the file. An unknown name is an error that suggests a setting; the
file, unlike the environment, holds nothing else.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection
from typing import Any

from recalib.errors import InputError
from recalib.settings.secret_files import read_small_file, variable

_CONFIG_VARIABLE = "RECALIB_CONFIG"


def values_of_config(known: Collection[str]) -> dict[str, Any]:
    """Return the settings of the file that ``RECALIB_CONFIG`` names, if it is set.

    `InputError` if the file cannot be read, is not TOML, or has a name that is not `known`.
    """
    values = _read_config()
    for name, value in values.items():
        if name not in known or name == "config":
            raise InputError(
                _location(name), found="an unknown setting", accepted=_suggestion(name, known)
            )
        if isinstance(value, dict | list):
            kind = "a table" if isinstance(value, dict) else "a list"
            raise InputError(_location(name), found=kind, accepted="text, a number or a boolean")
    return values


def origin_of(name: str) -> str:
    """Return the source of a setting: a variable, a file or the default."""
    name_variable = f"RECALIB_{name.upper()}"
    if variable(name_variable):
        return name_variable
    if path := variable(f"{name_variable}_FILE"):
        return f"{name_variable}_FILE, {path}"
    return _location(name) if name in _read_config() else "default"


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the most similar known name, or None."""
    return next(iter(difflib.get_close_matches(name, known, 1, 0.6)), None)


def _suggestion(name: str, known: Collection[str]) -> str:
    match = nearest(name, known)
    return "the settings of docs/settings.md, in lower case" if match is None else match


def _location(name: str) -> str:
    return f"{name} in {variable(_CONFIG_VARIABLE)}"


def _read_config() -> dict[str, Any]:
    path = variable(_CONFIG_VARIABLE)
    if not path:
        return {}
    accepted = "a TOML file of settings that can be read"
    try:
        return tomllib.loads(read_small_file(_CONFIG_VARIABLE, path, accepted))
    except tomllib.TOMLDecodeError as error:
        raise InputError(_CONFIG_VARIABLE, found=f"{path} ({error})", accepted=accepted) from None
