"""What late labels and their answers look like.

Decoded and encoded by msgspec, since ten thousand come at once; the pydantic forms here document
the interface.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from pydantic import BaseModel, Field

__all__ = [
    "LabelAnswer",
    "LabelCounts",
    "LabelOutcome",
    "LateLabel",
    "Observations",
    "Outcome",
    "Status",
]

Status = Literal["accepted", "duplicate", "conflict", "expired", "invalid"]


class LateLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The true class of one prediction."""

    prediction_id: str
    #: The class' index, or its label where the model has labels.
    label: int | str


class Observations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predictions that were made elsewhere, and what was true, row by row."""

    #: What the calibrator was given, (N, K); null is a masked class.
    logits: list[list[float | None]]
    #: Each class' index, or its label where the model has labels.
    labels: list[int | str]
    #: When each prediction was made, in seconds since 1970.
    times: list[float]
    #: A segment that the model declares.
    segment: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one label."""

    status: Status
    #: Why it was not taken; None where it was, or was there already.
    reason: str | None = None


class LabelOutcome(BaseModel):
    """What became of one label."""

    status: Status = Field(
        description="`accepted`; `duplicate`: the same label has come before, and this one has no "
        "effect; `conflict`: another one has come before, and stands; `expired`: the prediction "
        "is older than labels may be late; `invalid`: no prediction of this model, or no class of "
        "it."
    )
    reason: str = Field("", description="Why, for those that were not taken.")


class LabelCounts(BaseModel):
    """How many labels had each status."""

    accepted: int
    duplicate: int
    conflict: int
    expired: int
    invalid: int


class LabelAnswer(BaseModel):
    """What became of a batch of labels."""

    counts: LabelCounts
    items: list[LabelOutcome] = Field(description="One for each label, in the order sent.")
