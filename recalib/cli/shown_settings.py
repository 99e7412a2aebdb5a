"""Settings as people may see them: each value, where it comes from, and no secret."""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

from recalib.settings import Settings
from recalib.settings.toml_file import nearest, origin_of

__all__ = ["hidden", "shown", "surprises"]

#: What stands between `://` and `@` in a URL: a user and a password, or a key and its secret; and
#: passwords in its query.
_LOGIN = re.compile(r"(?<=://)[^/@?#]*:[^/?#]*(?=@)|(?<=://):?[^/@?#]+(?=@)")
_PASSWORD = re.compile(r"(?i)(?<=[?&])((?:ssl)?password|secret|token|key)=[^&#]*")


def hidden(text: str) -> str:
    """Return a setting's text without the secrets that it may hold."""
    return _PASSWORD.sub(r"\1=***", _LOGIN.sub("***", text))


def shown(settings: Settings, from_command_line: Set[str]) -> list[dict[str, Any]]:
    """Return name, value, default and origin of every setting, in their order.

    Parameters
    ----------
    from_command_line: names of those that it gives.
    """
    return [
        {
            "name": name,
            "value": _plain(getattr(settings, name)),
            "default": _plain(field.default),
            "from": "command line" if name in from_command_line else hidden(origin_of(name)),
        }
        for name, field in Settings.model_fields.items()
    ]


def surprises() -> list[str]:
    """Return a sentence for each variable that is nearly the name of a setting, and is none."""
    known = {f"RECALIB_{name.upper()}" for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    found = []
    for variable in sorted(os.environ):
        if variable.upper().startswith("RECALIB_") and variable.upper() not in known:
            meant = nearest(variable.upper(), sorted(known))
            if meant is not None and _alike(variable.upper(), meant):
                found.append(f"{variable} is no setting: is {meant} meant?")
    return found


def _alike(variable: str, meant: str) -> bool:
    # RECALIB_ is common to all, and would make all alike.
    ours = [variable.removeprefix("RECALIB_"), meant.removeprefix("RECALIB_")]
    return nearest(ours[0], ours[1:]) is not None


def _plain(value: Any) -> Any:
    return hidden(str(value)) if isinstance(value, str | Path) else value
