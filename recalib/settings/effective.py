"""Effective settings for display: value, default and origin, with secrets redacted."""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

from recalib.settings.settings import Settings
from recalib.settings.toml_file import nearest, origin_of

#: The user information of a URL, between `://` and `@`: a user and a password, or a key and its
#: secret.
_USER_INFO = re.compile(r"(?<=://)[^/@?#]*:[^/?#]*(?=@)|(?<=://):?[^/@?#]+(?=@)")
#: Passwords in the query of a URL.
_PASSWORD = re.compile(r"(?i)(?<=[?&])((?:ssl)?password|secret|token|key)=[^&#]*")
#: Settings whose value is a secret.
_SECRETS = ("oidc_client_secret",)
_PREFIX = "RECALIB_"
#: Read by the client and by commands with `--server`; not settings of a server.
_CLIENT_VARIABLES = ("RECALIB_API_KEY", "RECALIB_KEY", "RECALIB_SERVER")


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
            "value": _to_json(getattr(settings, name), is_secret=name in _SECRETS),
            "default": _to_json(field.default),
            "from": "command line" if name in from_command_line else redact(origin_of(name)),
        }
        for name, field in Settings.model_fields.items()
    ]


def unknown_variables() -> list[str]:
    """Return a sentence for each environment variable with the prefix that is not a setting."""
    names = [name.upper() for name in Settings.model_fields]
    names += [f"{name}_FILE" for name in names]
    sentences = []
    for variable in sorted(os.environ):
        if not variable.upper().startswith(_PREFIX) or variable.upper() in _CLIENT_VARIABLES:
            continue
        # Without the prefix, which would make all names similar.
        name = variable.upper().removeprefix(_PREFIX)
        if name not in names:
            match = nearest(name, names)
            hint = "see docs/settings.md" if match is None else f"did you mean {_PREFIX}{match}?"
            sentences.append(f"{variable} is not a setting: {hint}")
    return sentences


def _to_json(value: Any, *, is_secret: bool = False) -> Any:
    if is_secret and value:
        return "***"
    return redact(str(value)) if isinstance(value, str | Path) else value
