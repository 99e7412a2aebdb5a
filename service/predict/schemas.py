"""What calibrate requests and answers look like.

Decoded by msgspec and encoded by orjson straight from NumPy: on this path, a pydantic model would
take longer than everything else together. The pydantic forms here document the interface.
"""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, Field

__all__ = ["CalibrateAnswer", "CalibrateRequest", "Calibrated"]


class CalibrateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Logits, or probabilities, in rows; null is a masked class."""

    logits: list[list[float | None]] | None = None
    probabilities: list[list[float]] | None = None


class Calibrated(BaseModel):
    """Which calibrator answered."""

    version: int
    map: str


class CalibrateAnswer(BaseModel):
    """Calibrated probabilities, one row for each row of the request."""

    probabilities: list[list[float]] = Field(description="(N, K); rows sum to 1.")
    calibrator: Calibrated
