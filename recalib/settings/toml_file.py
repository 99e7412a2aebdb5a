"""Settings from one file: ``RECALIB_CONFIG=/etc/recalib.toml``, with a line ``port = 8000`` each.

Environment variables come before it. A name that is no setting is an error that says which one was
meant: in a file of ours, unlike in the environment, nothing else has a place.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from recalib.errors import InputError
from recalib.settings.secret_files import small_text, variable

__all__ = ["SettingsFromToml", "nearest", "origin_of"]

_VARIABLE = "RECALIB_CONFIG"


class SettingsFromToml(PydanticBaseSettingsSource):
    """The settings of the file that ``RECALIB_CONFIG`` names; none where it names none.

    `InputError` where it cannot be read, is not TOML, or holds what is no setting.
    """

    def __call__(self) -> dict[str, Any]:
        found = _content()
        known = self.settings_cls.model_fields
        for name, value in found.items():
            if name not in known or name == "config":
                raise InputError(_place(name), found="no setting", accepted=_meant(name, known))
            if isinstance(value, dict | list):
                kind = "a table" if isinstance(value, dict) else "a list"
                raise InputError(_place(name), found=kind, accepted="text, a number or a boolean")
        return found

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return a setting's value or None, its name, and that the value is plain."""
        return self().get(field_name), field_name, False


def origin_of(name: str) -> str:
    """Return where a setting comes from, where the command line does not give it."""
    own = f"RECALIB_{name.upper()}"
    if variable(own):
        return own
    if path := variable(f"{own}_FILE"):
        return f"{own}_FILE, {path}"
    return _place(name) if name in _content() else "default"


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant, if there is one."""
    return next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)


def _meant(name: str, known: Collection[str]) -> str:
    one = nearest(name, known)
    return "the settings of docs/settings.md, in small letters" if one is None else one


def _place(name: str) -> str:
    return f"{name} in {variable(_VARIABLE)}"


def _content() -> dict[str, Any]:
    path = variable(_VARIABLE)
    if not path:
        return {}
    accepted = "a TOML file of settings that can be read"
    try:
        return tomllib.loads(small_text(_VARIABLE, path, accepted))
    except tomllib.TOMLDecodeError as error:
        raise InputError(_VARIABLE, found=f"{path} ({error})", accepted=accepted) from None
