"""Settings from files: ``RECALIB_DATABASE_URL_FILE=/run/secrets/database-url``.

Environment variables are visible to other processes of the user, and appear in crash reports and in
`docker inspect`. A file can be restricted to its owner.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from recalib.errors import InputError

#: Far above the size of any setting; it limits the damage of a wrong path.
_MAX_FILE_BYTES = 65_536


class SettingsFromFiles(PydanticBaseSettingsSource):
    """Reads each setting whose variable ``RECALIB_<NAME>_FILE`` names a file with the value.

    White space around the value is removed, since editors end files with a newline. An empty
    variable or an empty file counts as unset. `InputError` if a file cannot be read.
    """

    def __call__(self) -> dict[str, Any]:
        present = {key.upper() for key in os.environ}  # read once, not for each field
        values = (
            (name, self.get_field_value(field, name)[0])
            for name, field in self.settings_cls.model_fields.items()
            if self._variable_of(name) in present
        )
        return {name: value for name, value in values if value is not None}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of a setting or None, its name, and False: the value is not JSON."""
        name = self._variable_of(field_name)
        path = variable(name)
        if not path:
            return None, field_name, False
        content = read_small_file(name, path, "a file that can be read, with the value")
        return content.strip() or None, field_name, False

    def _variable_of(self, field_name: str) -> str:
        return f"{self.config.get('env_prefix', '')}{field_name}_file".upper()


def variable(name: str) -> str:
    """Return the value of a variable, empty if it is unset; names are case-insensitive."""
    return next((value for key, value in os.environ.items() if key.upper() == name and value), "")


def read_small_file(name: str, path: str, accepted: str) -> str:
    """Return the content of the file that the variable `name` names; `InputError` on failure."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) <= _MAX_FILE_BYTES:
            return content.decode()
        problem = f"over {_MAX_FILE_BYTES} bytes"
    except OSError as error:
        problem = error.strerror or str(error)
    except UnicodeDecodeError:
        problem = "not text in UTF-8"
    raise InputError(name, found=f"{path} ({problem})", accepted=accepted)
