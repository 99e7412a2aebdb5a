"""Where a run leaves its checkpoints: a folder, or whatever else can keep bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from recalib.errors import InputError, UnavailableError
from recalib.files import write_atomically

__all__ = ["Checkpoints", "FolderCheckpoints"]


class Checkpoints(Protocol):
    """Keeps the newest checkpoint: the old one stands until the new one is whole."""

    def load(self) -> bytes | None:
        """Return the newest checkpoint, or None before the first."""

    def save(self, data: bytes) -> None:
        """Keep this one from now on.

        Raises
        ------
        UnavailableError: it cannot be kept, for want of space say; the one before still stands.
        """


class FolderCheckpoints:
    """Keeps it as the file `checkpoint.safetensors` of a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoint.safetensors"

    def load(self) -> bytes | None:
        """Return the newest checkpoint, or None before the first."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, data: bytes) -> None:
        """Write it beside the old one and rename it; `UnavailableError` where there is no room."""
        try:
            write_atomically(self.path, data)
        except InputError as error:
            raise UnavailableError(
                f"no checkpoint could be kept: {error.found}; the one before still stands"
            ) from error
