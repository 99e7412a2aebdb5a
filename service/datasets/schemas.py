"""What data sets look like on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from recalib.metrics import METRICS
from service.schemas.estimate import Estimate
from service.schemas.field_types import Time
from service.times import iso


def _names(unit: str) -> str:
    """Return the names of the metrics of that unit which every upload is measured by."""
    names = (name for name, metric in METRICS.items() if not metric.on_request)
    return ", ".join(f"`{name}`" for name in names if METRICS[name].unit == unit)


_UNITS = (
    "Metrics of the uncalibrated probabilities, as fractions; "
    f"{_names('nats')} in nats; {_names('score')} without a unit. "
    "Of a multilabel model: `accuracy`, `nll`, `brier` and `ece`, means over labels. Empty for a "
    "data set by reference that is larger than an upload may be."
)


class DatasetReference(BaseModel):
    """Files that stay where they are."""

    model_config = ConfigDict(extra="forbid")

    uri: str = Field(
        description="A file, a folder or a glob within a root of the server: `s3://bucket/path`, "
        "`gs://bucket/path` or `file:///path`.",
        max_length=2000,
    )
    digest: str | None = Field(
        None,
        description="Expected SHA-256 in hex: of the content of a single file; of several, of the "
        "output of `sha256sum`, with names relative to the folder of the URI, in order.",
        pattern="^[0-9a-f]{64}$",
    )


class Dataset(BaseModel):
    """Logits with labels, uploaded or by reference."""

    name: str
    model: str
    rows: int = Field(description="Number of rows N.")
    classes: int = Field(description="Number of classes K.")
    digest: str = Field(
        description="SHA-256 of the uploaded bytes, in hex; of a data set by reference, of its "
        "manifest: locations, sizes, versions and contents of the files."
    )
    size_bytes: int
    media_type: str = Field(
        description="Content type of the uploaded file; of a data set by reference, "
        "`application/vnd.recalib.manifest+json`."
    )
    input: Literal["logits", "probabilities"]
    metrics: dict[str, Estimate] = Field(description=_UNITS)
    created_at: Time
    description: str = ""
    tags: list[str] = []
    uri: str | None = Field(None, description="URI of a data set by reference; otherwise null.")

    @classmethod
    def of(cls, row: registry.Dataset) -> Dataset:
        """Return the wire form of a data set."""
        return cls(
            name=row.name,
            model=row.model,
            rows=row.rows,
            classes=row.classes,
            digest=row.digest,
            size_bytes=row.size_bytes,
            media_type=row.media_type,
            input=row.input,
            metrics={name: Estimate(**metric) for name, metric in row.metrics.items()},
            created_at=iso(row.created_at),
            description=row.description,
            tags=list(row.tags),
            uri=row.uri,
        )


class DatasetPage(BaseModel):
    """A page of data sets, ordered by name."""

    items: list[Dataset]
    next_cursor: str | None
