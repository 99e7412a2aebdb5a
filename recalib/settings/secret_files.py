"""Settings from files: ``RECALIB_DATABASE_URL_FILE=/run/secrets/database-url``.

Environment variables are visible to other processes of the user, and appear in crash reports and in
`docker inspect`. A file can be restricted to its owner.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from recalib.errors import InputError

#: Far above the size of any setting; it limits the damage of a wrong path.
_MAX_FILE_BYTES = 65_536


def values_of_files(names: Collection[str]) -> dict[str, str]:
    """Return the settings whose variable ``RECALIB_<NAME>_FILE`` names a file with the value.

    White space around the value is removed, since editors end files with a newline. An empty
    variable or an empty file counts as unset. `InputError` if a file cannot be read.
    """
    present = {key.upper() for key in os.environ}  # read once, not for each setting
    values = {}
    for name in names:
        source = f"RECALIB_{name}_FILE".upper()
        if source in present and (path := variable(source)):
            content = read_small_file(source, path, "a file that can be read, with the value")
            values[name] = content.strip()
    return {name: value for name, value in values.items() if value}


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
