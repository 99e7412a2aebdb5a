"""Requests and responses for late labels.

msgspec decodes and encodes them, because a batch has up to ten thousand. The pydantic models
document the interface.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from recalib.contract.labels import LabelStatus

#: Cards have at most 15 bins; other programs may write cards with more.
_MAX_BINS = 1000
#: Documents have at most a thousand members of objects; a bucket has three.
_MAX_BUCKETS = 200

#: The class of a row, or of a multilabel model the labels that it has.
RowLabel = int | str | list[int | str]


class LateLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The true class of one prediction."""

    #: The id in the answer of calibrate.
    prediction_id: str
    #: Index of the class, or its label if the model has labels. Of a multilabel model: a list of
    #: the labels that the row has, as indices or names.
    label: RowLabel
    #: The group of the row, whose other rows it may depend on, in place of that of the calibrate
    #: request; "" for none.
    group: str = ""


class Observations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predictions that another program made, with their true classes, row by row."""

    #: Inputs of the calibrator, (N, K); null is a masked class.
    logits: list[list[float | None]]
    #: Index of each class, or its label if the model has labels. Of a multilabel model: a list of
    #: the labels that the row has, as indices or names.
    labels: list[RowLabel]
    #: Time of each prediction, in seconds since 1970.
    times: list[float]
    #: A segment that the model declares.
    segment: str = ""
    #: Whether these predictions are already in the counts of traffic.
    counted: bool = False
    #: The group of each row, whose other rows it may depend on; "" for none. By default no groups.
    groups: list[str] = []


class LabelOutcome(BaseModel):
    """The outcome of one label."""

    status: LabelStatus = Field(
        description="`accepted`; `duplicate`: the same label was stored before; `conflict`: "
        "another label was stored before, and is kept; `expired`: the prediction is too old; "
        "`invalid`: not a prediction or not a class of this model."
    )
    reason: str = Field("", description="Why the label was rejected.")


class LabelCounts(BaseModel):
    """Number of labels by status."""

    #: Number of labels that are accepted.
    accepted: int
    #: Number of labels that are stored already.
    duplicate: int
    #: Number of labels that are stored with another class.
    conflict: int
    #: Number of labels that are too late.
    expired: int
    #: Number of labels that are invalid.
    invalid: int


class LabelAnswer(BaseModel):
    """The outcomes of a batch of labels."""

    #: Number of labels by status.
    counts: LabelCounts
    items: list[LabelOutcome] = Field(description="One for each label, in the order sent.")
    warnings: list[str] = Field(
        [],
        description="Of observations: why the rows may not be logits of the model; missing if "
        "there is no reason.",
    )


class TrafficBucket(BaseModel):
    """Predictions of a short time, by bin of confidence."""

    model_config = ConfigDict(extra="forbid", strict=True)

    started_at: float = Field(
        ge=0, lt=1e11, allow_inf_nan=False, description="When it began, in seconds since 1970."
    )
    predictions: list[Annotated[int, Field(ge=0, le=10**12)]] = Field(
        max_length=_MAX_BINS,
        description="Number of predictions in each bin of the calibrator. The inner edges of the "
        "bins are `confidences.edges` of its card; 1/15, 2/15 and so on if it has none.",
    )
    confidence_sums: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        max_length=_MAX_BINS,
        description="Sum of the confidences, or of P(y = 1), of these predictions.",
    )


class TrafficSums(BaseModel):
    """Predictions that another program made, as sums."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: The sums, by time.
    buckets: list[TrafficBucket] = Field(max_length=_MAX_BUCKETS)
    segment: str = Field("", description="A segment that the model declares.")
    target: Literal["top_label", "positive_class"] = Field(
        "top_label",
        description="What the bins and sums are of, as `confidences.target` of the calibrator's "
        "card: `positive_class` is P(y = 1) of two classes, `top_label` the confidence.",
    )

    @model_serializer(mode="wrap")
    def _without_default(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields; a request of an earlier version keeps its idempotency fingerprint."""
        fields: dict[str, Any] = handler(self)
        if self.target == "top_label":
            del fields["target"]
        return fields
