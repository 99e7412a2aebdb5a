"""What monitoring looks like on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib.registry import MAX_SEGMENTS, MonitoringConfig
from service.calibrators.schemas import MOST_VERSIONS
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

_USUAL = MonitoringConfig()
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
        _USUAL.window_labels,
        description="Labels that are enough for a window; `least_labels` where those are more.",
    )
    segments: Annotated[list[Annotated[str, NAME]], Documented({"uniqueItems": True})] = Field(
        [],
        max_length=MAX_SEGMENTS,
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
    def of(cls, monitoring: MonitoringConfig) -> MonitoringSettings:
        """Return the wire form of what is watched."""
        return cls(**monitoring.to_dict())

    def monitoring(self) -> MonitoringConfig:
        """Return what is watched; `InputError` for segments that cannot be."""
        return MonitoringConfig(**{**self.model_dump(), "segments": tuple(self.segments)})


CalibrationState = Literal["fresh", "unverified", "suspect", "stale"]
_EVIDENCE = (
    "The numbers behind it, as fractions: `log_evidence` of the test and the `threshold` that it "
    "must reach; `ece`, its noise floor `ece_floor` and interval of the latest window of `n` "
    "labels; the unbiased `ce`; `psi` of confidences served and its `psi_threshold`; `coverage` of "
    "labels and whether they are `selective`; mean `delay` of labels in seconds. Null where there "
    "is nothing to tell it from."
)


class SegmentReport(BaseModel):
    """How a segment holds up; `(rest)` is what is of none."""

    segment: str
    state: CalibrationState
    reason: str
    evidence: dict[str, Any] = Field(description=_EVIDENCE)


class WindowReport(BaseModel):
    """What the labels of one cohort of predictions say, all segments together."""

    start: str = Field(description="Of the predictions.")
    end: str
    measured: dict[str, Any] = Field(
        description="`ece` with floor and interval, unbiased `ce` with interval, `accuracy`, "
        "`confidence`, `labelled` of `traffic`, `coverage`, mean `delay` in seconds."
    )


class MonitoringEvent(BaseModel):
    """A state that was entered, or what was done about it."""

    at: str
    version: int
    kind: str
    actor: str
    reason: str
    evidence: dict[str, Any]


class CandidateDrop(BaseModel):
    """Which candidate is given up, and why."""

    version: int = Field(ge=1, le=MOST_VERSIONS)
    reason: Text = Field("", max_length=500, description="Kept in the audit trail.")


class CandidateReport(BaseModel):
    """A version that is compared with the champion on the same predictions, or was the last."""

    version: int
    verdict: Literal["promoted", "dropped", "proven"] | None = Field(
        description="Null while it is compared; `proven` waits for somebody to promote it."
    )
    began_at: str
    evidence: dict[str, Any] = Field(
        description="`labels` compared; `mean_difference` of Brier scores, above 0 where the "
        "candidate is better; `log_evidence` that it is, `log_evidence_against` that it is no "
        "better by what is worth a change, and the `threshold` of both."
    )


class MonitoringReport(BaseModel):
    """How a model's champion holds up."""

    model: str
    version: int | None = Field(description="The champion; null where there is none.")
    state: CalibrationState = Field(
        description="`fresh`: enough labels say that it is good; `unverified`: too few, or too "
        "old ones, to tell; `suspect`: something has changed; `stale`: a test that errs with "
        "probability `alpha` at most has rejected it."
    )
    since: str | None = Field(description="When it entered the state.")
    reason: str = Field(description="One sentence.")
    evidence: dict[str, Any] = Field(description=_EVIDENCE)
    onset: str | None = Field(description="Predictions from here on speak against it.")
    segments: list[SegmentReport]
    windows: list[WindowReport] = Field(description="Matured cohorts, newest first.")
    late_labels: int = Field(description="Labels that came too late to count.")
    assessed_at: str | None
    events: list[MonitoringEvent] = Field(description="What has happened, newest first.")
    candidate: CandidateReport | None
    captured_rows: int = Field(description="Predictions whose logits are kept, to fit anew on.")
