"""Schema of a metric's value."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Estimate(BaseModel):
    """A metric's value, and where there is one its 95% interval and its noise floor."""

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = Field(None, description="What a calibrated model shows on average.")
