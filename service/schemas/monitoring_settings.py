"""Schema of the monitoring settings of a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib.core.watched_classes import MAX_WATCHED_CLASSES
from recalib.drift.selection import MAX_SELECTION_RATIO
from recalib.registry import MAX_SEGMENTS, MonitoringConfig
from service.schemas.field_types import INTEGRAL, NAME, Documented, Text

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
        description="The probability of ever calling a good calibrator stale, over all versions, "
        "segments and classes of the model.",
    )
    selection_ratio: float = Field(
        _DEFAULT.selection_ratio,
        ge=1,
        le=MAX_SELECTION_RATIO,
        description="The assumed largest ratio of the labelling rates of right and wrong "
        "predictions at similar confidences, in both directions. Above 1, states follow from the "
        "interval of the error under every such selection of labels.",
    )
    maturity_seconds: _Seconds = Field(
        _DEFAULT.maturity_seconds,
        description="Time to wait for the label of a prediction; later labels do not count.",
    )
    cohort_seconds: _Seconds = Field(
        _DEFAULT.cohort_seconds,
        description="Length of a cohort of predictions that is assessed at once.",
    )
    least_labels: Annotated[int, Field(ge=2, le=10**7), INTEGRAL] = Field(
        _DEFAULT.least_labels, description="With fewer labels, a window has no state."
    )
    window_labels: Annotated[int, Field(ge=2, le=10**7), INTEGRAL] = Field(
        _DEFAULT.window_labels,
        description="Labels of a window; at least `least_labels`.",
    )
    segments: Annotated[list[Annotated[str, NAME]], Documented({"uniqueItems": True})] = Field(
        [],
        max_length=MAX_SEGMENTS,
        description="Values of `segment` that are monitored separately; all others are monitored "
        "together. Segments can only be added at the end of the list.",
    )
    classes: Annotated[list[Text], Documented({"uniqueItems": True})] = Field(
        [],
        max_length=MAX_WATCHED_CLASSES,
        description="Classes whose probabilities are monitored: names, or indices as text; `all` as"
        " the only entry is every class. Without `capture`, only predictions of a class count.",
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
        """Return the domain form; raise `InputError` if segments or classes are not valid."""
        lists = {"segments": tuple(self.segments), "classes": tuple(self.classes)}
        return MonitoringConfig(**{**self.model_dump(), **lists})
