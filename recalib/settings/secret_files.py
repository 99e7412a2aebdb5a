"""Settings from files: ``RECALIB_DATABASE_URL_FILE=/run/secrets/database-url``.

Environments are seen by whoever may look at a process, and end up in crash reports and in what
`docker inspect` prints; a file is read by its owner.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from recalib.errors import InputError

__all__ = ["SettingsFromFiles", "small_text", "variable"]

#: Far more than any setting, and little enough to read by mistake.
_LONGEST_BYTES = 65_536


class SettingsFromFiles(PydanticBaseSettingsSource):
    """The settings whose variable, with ``_FILE`` after it, names a file that holds the value.

    White space around the value is none of it, since editors end files with a newline. An empty
    variable is as good as none, and an empty file as an empty variable. `InputError` where the
    file cannot be read.
    """

    def __call__(self) -> dict[str, Any]:
        present = {key.upper() for key in os.environ}  # looked through once, not for each field
        found = (
            (name, self.get_field_value(field, name)[0])
            for name, field in self.settings_cls.model_fields.items()
            if self._variable_of(name) in present
        )
        return {name: value for name, value in found if value is not None}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return a setting's value or None, its name, and that the value is plain text."""
        name = self._variable_of(field_name)
        path = variable(name)
        if not path:
            return None, field_name, False
        content = small_text(name, path, "a file that can be read, with the value")
        return content.strip() or None, field_name, False

    def _variable_of(self, field_name: str) -> str:
        return f"{self.config.get('env_prefix', '')}{field_name}_file".upper()


def variable(name: str) -> str:
    """Return a variable's value, empty where there is none; names are read in any case."""
    return next((value for key, value in os.environ.items() if key.upper() == name and value), "")


def small_text(name: str, path: str, accepted: str) -> str:
    """Return what the file that the variable `name` names holds; `InputError` if it cannot be."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_BYTES + 1)
        if len(content) <= _LONGEST_BYTES:
            return content.decode()
        problem = f"over {_LONGEST_BYTES} bytes"
    except OSError as error:
        problem = error.strerror or str(error)
    except UnicodeDecodeError:
        problem = "not text in UTF-8"
    raise InputError(name, found=f"{path} ({problem})", accepted=accepted)
