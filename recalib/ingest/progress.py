"""What an ingest has done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Numbers since the beginning."""

    #: Messages of Kafka, or files, that are done.
    items: int = 0
    #: Files that an earlier run has done.
    skipped: int = 0
    #: Messages, or rows, that are not labels.
    malformed: int = 0
    #: Labels by their outcome on the server.
    labels: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {
            "items": self.items,
            "skipped": self.skipped,
            "malformed": self.malformed,
            "labels": dict(self.labels),
        }
