"""Checkpoint storage: a protocol, and its implementation for a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from recalib.errors import InputError, UnavailableError
from recalib.files import write_atomically


class Checkpoints(Protocol):
    """Stores the newest checkpoint and replaces the previous checkpoint atomically."""

    def load(self) -> bytes | None:
        """Return the newest checkpoint, or None before the first."""

    def save(self, data: bytes) -> None:
        """Store this checkpoint as the newest.

        Raises
        ------
        UnavailableError: it cannot be stored, for example because the disk is full; the previous
            checkpoint remains.
        """


class FolderCheckpoints:
    """Stores the newest checkpoint as `checkpoint.safetensors` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoint.safetensors"

    def load(self) -> bytes | None:
        """Return the newest checkpoint, or None before the first."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, data: bytes) -> None:
        """Replace the file atomically; raise `UnavailableError` where the disk is full."""
        try:
            write_atomically(self.path, data)
        except InputError as error:
            raise UnavailableError(
                f"no checkpoint could be kept: {error.found}; the previous checkpoint remains"
            ) from error
