"""What calibrate requests and answers look like.

Decoded by msgspec and encoded by orjson straight from NumPy: on this path, a pydantic model would
take longer than everything else together. The pydantic forms here document the interface.
"""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, Field

__all__ = ["CalibrateAnswer", "CalibrateRequest", "Calibrated", "TopAnswer"]


class CalibrateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Logits, or probabilities, in rows; null is a masked class."""

    logits: list[list[float | None]] | None = None
    probabilities: list[list[float]] | None = None


#: Answered only where ids are wanted; never null as a whole.
PredictionIds = list[str | None]
_IDS: PredictionIds = Field(
    default=[],
    description="(N,); by which each row's label can be sent later, or null for a row without. "
    "Missing where `ids` is 0.",
)


class Calibrated(BaseModel):
    """Which calibrator answered."""

    version: int
    map: str


class CalibrateAnswer(BaseModel):
    """Calibrated probabilities, one row for each row of the request."""

    probabilities: list[list[float]] = Field(description="(N, K); rows sum to 1.")
    calibrator: Calibrated
    prediction_ids: PredictionIds = _IDS


class Top(BaseModel):
    """The likeliest classes of each row, the likeliest first; of equals the lower number first."""

    classes: list[list[int]] = Field(description="(N, k); their numbers, from 0.")
    probabilities: list[list[float]] = Field(description="(N, k).")
    labels: list[list[str]] | None = Field(
        None, description="(N, k); only where the model has labels."
    )


class TopAnswer(BaseModel):
    """The likeliest classes of each row of the request, where `top_k` asks for them."""

    top_k: Top
    calibrator: Calibrated
    prediction_ids: PredictionIds = _IDS
