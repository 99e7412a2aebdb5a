"""Effective settings for display: value, default and origin, with secrets redacted."""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

from recalib.settings.settings import Settings
from recalib.settings.toml_file import nearest, origin_of

__all__ = ["effective_settings", "misspelt_variables", "redact"]

#: The user information of a URL, between `://` and `@`: a user and a password, or a key and its
#: secret.
_USER_INFO = re.compile(r"(?<=://)[^/@?#]*:[^/?#]*(?=@)|(?<=://):?[^/@?#]+(?=@)")
#: Passwords in the query of a URL.
_PASSWORD = re.compile(r"(?i)(?<=[?&])((?:ssl)?password|secret|token|key)=[^&#]*")
_PREFIX = "RECALIB_"


def redact(text: str) -> str:
    """Return the text with passwords and secrets in URLs replaced by ``***``."""
    return _PASSWORD.sub(r"\1=***", _USER_INFO.sub("***", text))


def effective_settings(settings: Settings, from_command_line: Set[str]) -> list[dict[str, Any]]:
    """Return name, value, default and origin of every setting, in their order.

    Parameters
    ----------
    from_command_line: names of the settings that the command line gives.
    """
    return [
        {
            "name": name,
            "value": _to_json(getattr(settings, name)),
            "default": _to_json(field.default),
            "from": "command line" if name in from_command_line else redact(origin_of(name)),
        }
        for name, field in Settings.model_fields.items()
    ]


def misspelt_variables() -> list[str]:
    """Return a sentence for each environment variable that looks like a misspelt setting."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    sentences = []
    for variable in sorted(os.environ):
        name = variable.upper()
        if name.startswith(_PREFIX) and name not in known:
            intended = nearest(name, sorted(known))
            if intended is not None and _is_similar(name, intended):
                sentences.append(f"{variable} is not a setting: did you mean {intended}?")
    return sentences


def _is_similar(name: str, known: str) -> bool:
    # The common prefix would make all names similar.
    return nearest(name.removeprefix(_PREFIX), [known.removeprefix(_PREFIX)]) is not None


def _to_json(value: Any) -> Any:
    return redact(str(value)) if isinstance(value, str | Path) else value
