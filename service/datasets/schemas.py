"""What data sets look like on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

__all__ = ["Dataset", "DatasetPage", "Estimate"]


class Estimate(BaseModel):
    """A metric's value, and where there is one its 95% interval and its noise floor."""

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = Field(None, description="What a calibrated model shows on average.")


class Dataset(BaseModel):
    """Uploaded logits with labels."""

    name: str
    model: str
    rows: int = Field(description="N.")
    classes: int = Field(description="K.")
    digest: str = Field(description="SHA-256 of the uploaded bytes, in hex.")
    size_bytes: int
    input: Literal["logits", "probabilities"]
    metrics: dict[str, Estimate] = Field(description="Uncalibrated, as fractions.")
    created_at: str


class DatasetPage(BaseModel):
    """Some data sets, ordered by name."""

    items: list[Dataset]
    next_cursor: str | None
