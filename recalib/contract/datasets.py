"""Data sets and values of metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recalib.contract.base import Page, Resource, Time, one_of

INPUT = one_of(Literal["logits", "probabilities"])

_METRICS = (
    "Metrics of the uncalibrated probabilities, as fractions; `nll`, `mean_entropy`, "
    "`classwise_loss_std` in nats; `roc_auc`, `brier`, `aurc`, `e_aurc`, `brier_reliability`, "
    "`brier_resolution`, `brier_uncertainty` without a unit. Of a multilabel model: `accuracy`, "
    "`nll`, `brier` and `ece`, means over labels. Empty for a data set by reference that is larger "
    "than an upload may be."
)


class Estimate(Resource):
    """A metric's value, and where there is one its 95% interval and its noise floor."""

    #: The value.
    value: float
    #: Lower end of the 95% interval.
    low: float | None = None
    #: Upper end of the 95% interval.
    high: float | None = None
    #: What a calibrated model shows on average.
    floor: float | None = None


class Dataset(Resource):
    """Logits with labels, uploaded or by reference."""

    #: Name of the data set.
    name: str
    #: Name of the model.
    model: str
    #: Number of rows N.
    rows: int
    #: Number of classes K.
    classes: int
    #: SHA-256 of the uploaded bytes, in hex; of a data set by reference, of its manifest:
    #: locations, sizes, versions and contents of the files.
    digest: str
    #: Size of the files, in bytes.
    size_bytes: int
    #: Content type of the uploaded file; of a data set by reference,
    #: `application/vnd.recalib.manifest+json`.
    media_type: str
    #: What the rows are.
    input: Annotated[str, INPUT]
    metrics: dict[str, Estimate] = Field(description=_METRICS)
    #: When it was created.
    created_at: Time
    #: Description by a person.
    description: str = ""
    #: Tags by a person.
    tags: tuple[str, ...] = ()
    #: URI of a data set by reference; otherwise null.
    uri: str | None = None
    #: After an upload: why the rows may not be logits of this model, compared with its earlier data
    #: sets and live traffic.
    warnings: tuple[str, ...] = ()


class DatasetPage(Page[Dataset]):
    """A page of data sets, ordered by name."""
