"""What data sets look like on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from recalib import registry
from recalib.metrics import METRICS
from service.schemas.estimate import Estimate
from service.times import iso

__all__ = ["Dataset", "DatasetPage"]


def _names(unit: str) -> str:
    """Return the names of the metrics of that unit which every upload is measured by."""
    names = (name for name, metric in METRICS.items() if not metric.on_request)
    return ", ".join(f"`{name}`" for name in names if METRICS[name].unit == unit)


_UNITS = (
    "Metrics of the uncalibrated probabilities, as fractions; "
    f"{_names('nats')} in nats; {_names('score')} without a unit."
)


class Dataset(BaseModel):
    """Uploaded logits with labels."""

    name: str
    model: str
    rows: int = Field(description="N.")
    classes: int = Field(description="K.")
    digest: str = Field(description="SHA-256 of the uploaded bytes, in hex.")
    size_bytes: int
    media_type: str = Field(description="Content type of the uploaded file.")
    input: Literal["logits", "probabilities"]
    metrics: dict[str, Estimate] = Field(description=_UNITS)
    created_at: str
    description: str = ""
    tags: list[str] = []

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
        )


class DatasetPage(BaseModel):
    """Some data sets, ordered by name."""

    items: list[Dataset]
    next_cursor: str | None
