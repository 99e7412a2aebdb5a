"""What monitoring looks like on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib.registry import MOST_SEGMENTS, Watching
from service.transport.texts import NAME
from service.transport.whole import WHOLE

__all__ = ["MonitoringSettings"]

_USUAL = Watching()
_Seconds = Annotated[float, Field(ge=1, lt=1e10, allow_inf_nan=False)]


class MonitoringSettings(BaseModel):
    """What of a model is watched, and how; what is not said has its default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    objective: float = Field(
        _USUAL.objective, gt=0, lt=1, description="The calibration error that is still good."
    )
    tolerance: float = Field(
        _USUAL.tolerance,
        ge=0,
        lt=0.5,
        description="How far accuracy may be from confidence before it is drift.",
    )
    alpha: float = Field(
        _USUAL.alpha,
        gt=0,
        lt=1,
        description="The probability of ever calling a calibrator stale that is not, over all of "
        "the model's versions and segments.",
    )
    maturity_seconds: _Seconds = Field(
        _USUAL.maturity_seconds,
        description="How long after a prediction its label is waited for; later ones do not count.",
    )
    cohort_seconds: _Seconds = Field(
        _USUAL.cohort_seconds, description="Predictions are looked at in cohorts of so long."
    )
    least_labels: Annotated[int, Field(ge=2, le=10**7), WHOLE] = Field(
        _USUAL.least_labels, description="Labels below which nothing is said."
    )
    window_labels: Annotated[int, Field(ge=2, le=10**7), WHOLE] = Field(
        _USUAL.window_labels, description="Labels that are enough for a window."
    )
    segments: list[Annotated[str, NAME]] = Field(
        [],
        max_length=MOST_SEGMENTS,
        description="Values of `segment` that are watched by themselves; others, and none, are "
        "watched together. The list may grow at its end, and change in no other way.",
    )
    capture: float = Field(
        _USUAL.capture,
        ge=0,
        le=1,
        description="Share of the predictions with ids whose logits are kept, to fit anew on.",
    )
    capture_seconds: _Seconds = Field(_USUAL.capture_seconds, description="How long they are kept.")
    refit: Literal["on_stale", "manual"] = Field(
        _USUAL.refit, description="Whether a stale calibrator is fitted anew without being asked."
    )
    refit_every_seconds: Annotated[float, Field(ge=60, lt=1e10)] | None = Field(
        None, description="Fit anew so often, whatever the state."
    )
    promote: Literal["automatic", "manual"] = Field(
        _USUAL.promote,
        description="Whether a candidate that has proven better becomes the champion by itself.",
    )

    @classmethod
    def of(cls, watching: Watching) -> MonitoringSettings:
        """Return the wire form of what is watched."""
        return cls(**watching.to_dict())

    def watching(self) -> Watching:
        """Return what is watched; `InputError` for segments that cannot be."""
        return Watching(**{**self.model_dump(), "segments": tuple(self.segments)})
