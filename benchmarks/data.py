"""The folder of real data, which is not part of the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """Return the folder that `RECALIB_DATA` names, or its default; it may be missing."""
    return Path(os.environ.get("RECALIB_DATA", Path(__file__).parents[2] / "shared" / "data"))


def folder_with(file: str) -> Path:
    """Return the folder of real data, or end the program if it lacks `file`."""
    folder = data_folder()
    if not (folder / file).is_file():
        sys.exit(f"no {file} in {folder}: set RECALIB_DATA to its folder")
    return folder
