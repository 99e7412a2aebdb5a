"""Requests and responses for monitoring."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib.registry import MAX_SEGMENTS, MonitoringConfig
from service.calibrators.schemas import MAX_VERSION
from service.http.integers import WHOLE
from service.http.types import NAME, Documented, Text

__all__ = [
    "CalibrationState",
    "CandidateDrop",
    "CandidateReport",
    "MonitoringEvent",
    "MonitoringReport",
    "MonitoringSettings",
    "SegmentReport",
    "WindowReport",
]

_DEFAULT = MonitoringConfig()
_Seconds = Annotated[float, Field(ge=1, lt=1e10, allow_inf_nan=False)]


class MonitoringSettings(BaseModel):
    """Monitoring settings of a model; fields that are not set have their defaults."""

    model_config = ConfigDict(extra="forbid", strict=True)

    objective: float = Field(
        _DEFAULT.objective, gt=0, lt=1, description="The largest acceptable calibration error."
    )
    tolerance: float = Field(
        _DEFAULT.tolerance,
        ge=0,
        lt=0.5,
        description="The largest difference of accuracy and confidence that is not drift.",
    )
    alpha: float = Field(
        _DEFAULT.alpha,
        gt=0,
        lt=1,
        description="The probability of ever calling a good calibrator stale, over all versions "
        "and segments of the model.",
    )
    maturity_seconds: _Seconds = Field(
        _DEFAULT.maturity_seconds,
        description="Time to wait for the label of a prediction; later labels do not count.",
    )
    cohort_seconds: _Seconds = Field(
        _DEFAULT.cohort_seconds,
        description="Length of a cohort of predictions that is assessed at once.",
    )
    least_labels: Annotated[int, Field(ge=2, le=10**7), WHOLE] = Field(
        _DEFAULT.least_labels, description="With fewer labels, a window has no state."
    )
    window_labels: Annotated[int, Field(ge=2, le=10**7), WHOLE] = Field(
        _DEFAULT.window_labels,
        description="Labels of a window; at least `least_labels`.",
    )
    segments: Annotated[list[Annotated[str, NAME]], Documented({"uniqueItems": True})] = Field(
        [],
        max_length=MAX_SEGMENTS,
        description="Values of `segment` that are monitored separately; all others are monitored "
        "together. Segments can only be added at the end of the list.",
    )
    capture: float = Field(
        _DEFAULT.capture,
        ge=0,
        le=1,
        description="Share of the predictions with ids whose logits are kept for refitting.",
    )
    capture_seconds: _Seconds = Field(
        _DEFAULT.capture_seconds, description="Time for which these logits are kept."
    )
    refit: Literal["on_stale", "manual"] = Field(
        _DEFAULT.refit, description="Whether a stale calibrator is refitted automatically."
    )
    refit_every_seconds: Annotated[float, Field(ge=60, lt=1e10)] | None = Field(
        None, description="Refit at this interval, in every state."
    )
    promote: Literal["automatic", "manual"] = Field(
        _DEFAULT.promote,
        description="Whether a candidate that is proven better becomes the champion automatically.",
    )

    @classmethod
    def of(cls, monitoring: MonitoringConfig) -> MonitoringSettings:
        """Convert the monitoring settings of a model."""
        return cls(**monitoring.to_dict())

    def monitoring(self) -> MonitoringConfig:
        """Return the domain form; raise `InputError` if the segments are not valid."""
        return MonitoringConfig(**{**self.model_dump(), "segments": tuple(self.segments)})


CalibrationState = Literal["fresh", "unverified", "suspect", "stale"]
_EVIDENCE = (
    "The numbers behind the state, as fractions: `log_evidence` of the test and its "
    "`threshold`; `ece`, its noise floor `ece_floor` and interval of the latest window of `n` "
    "labels; the unbiased `ce`; `psi` of confidences served and its `psi_threshold`; `coverage` of "
    "labels and whether they are `selective`; mean `delay` of labels in seconds. Null if there is "
    "no data."
)


class SegmentReport(BaseModel):
    """The state of a segment; `(rest)` is all predictions without a declared segment."""

    segment: str
    state: CalibrationState
    reason: str
    evidence: dict[str, Any] = Field(description=_EVIDENCE)


class WindowReport(BaseModel):
    """Metrics of one cohort of predictions, all segments together."""

    start: str = Field(description="Start of the cohort, by prediction time.")
    end: str
    measured: dict[str, Any] = Field(
        description="`ece` with floor and interval, unbiased `ce` with interval, `accuracy`, "
        "`confidence`, `labelled` of `traffic`, `coverage`, mean `delay` in seconds."
    )


class MonitoringEvent(BaseModel):
    """A change of state, or an action that follows from it."""

    at: str
    version: int
    kind: str
    actor: str
    reason: str
    evidence: dict[str, Any]


class CandidateDrop(BaseModel):
    """A request to drop a candidate."""

    version: int = Field(ge=1, le=MAX_VERSION)
    reason: Text = Field("", max_length=500, description="Kept in the audit trail.")


class CandidateReport(BaseModel):
    """The latest version that is or was compared with the champion on the same predictions."""

    version: int
    verdict: Literal["promoted", "dropped", "proven"] | None = Field(
        description="Null during the comparison; `proven` is ready to be promoted by hand."
    )
    began_at: str
    evidence: dict[str, Any] = Field(
        description="`labels` compared; `mean_difference` of Brier scores, above 0 if the "
        "candidate is better; `log_evidence` that it is better, `log_evidence_against` that it is "
        "not better by a relevant amount, and the `threshold` of both."
    )


class MonitoringReport(BaseModel):
    """The calibration state of a model's champion."""

    model: str
    version: int | None = Field(description="Version of the champion; null if there is none.")
    state: CalibrationState = Field(
        description="`fresh`: enough labels confirm it; `unverified`: labels are too few or too "
        "old; `suspect`: something has changed; `stale`: a test with error probability at most "
        "`alpha` has rejected it."
    )
    since: str | None = Field(description="Start of the state.")
    reason: str = Field(description="One sentence.")
    evidence: dict[str, Any] = Field(description=_EVIDENCE)
    onset: str | None = Field(description="Estimated start of the drift, by prediction time.")
    segments: list[SegmentReport]
    windows: list[WindowReport] = Field(description="Matured cohorts, newest first.")
    late_labels: int = Field(description="Labels that came too late to count.")
    assessed_at: str | None
    events: list[MonitoringEvent] = Field(description="Newest first.")
    candidate: CandidateReport | None
    captured_rows: int = Field(description="Predictions whose logits are kept for refitting.")
