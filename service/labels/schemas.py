"""Requests and responses for late labels.

msgspec decodes and encodes them, because a batch has up to ten thousand. The pydantic models
document the interface.
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


class LateLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The true class of one prediction."""

    prediction_id: str
    #: Index of the class, or its label if the model has labels.
    label: int | str


class Observations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predictions that another program made, with their true classes, row by row."""

    #: Inputs of the calibrator, (N, K); null is a masked class.
    logits: list[list[float | None]]
    #: Index of each class, or its label if the model has labels.
    labels: list[int | str]
    #: Time of each prediction, in seconds since 1970.
    times: list[float]
    #: A segment that the model declares.
    segment: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one label."""

    status: Status
    #: Why it was rejected; None for accepted and duplicate labels.
    reason: str | None = None


class LabelOutcome(BaseModel):
    """The outcome of one label."""

    status: Status = Field(
        description="`accepted`; `duplicate`: the same label was stored before; `conflict`: "
        "another label was stored before, and is kept; `expired`: the prediction is too old; "
        "`invalid`: not a prediction or not a class of this model."
    )
    reason: str = Field("", description="Why the label was rejected.")


class LabelCounts(BaseModel):
    """Number of labels by status."""

    accepted: int
    duplicate: int
    conflict: int
    expired: int
    invalid: int


class LabelAnswer(BaseModel):
    """The outcomes of a batch of labels."""

    counts: LabelCounts
    items: list[LabelOutcome] = Field(description="One for each label, in the order sent.")
