"""Settings of monitoring: what decides a state, and the settings of a model on a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from recalib.core.field_types import (
    NAME,
    STORABLE,
    Documented,
    Fraction,
    Interval,
    check_fields,
)
from recalib.core.resource_names import check_name
from recalib.core.watched_classes import MAX_WATCHED_CLASSES
from recalib.errors import ConflictError, InputError

#: Largest number of segments of a model: storage grows with it, and α is shared among segments. A
#: prediction id has room for 255.
MAX_SEGMENTS = 100
#: At this ratio, the bounds of the error are nearly those without an assumption.
MAX_SELECTION_RATIO = 1000.0

Tolerance = Annotated[float, Interval(ge=0, lt=0.5)]
_Labels = Annotated[int, Interval(ge=2, le=10**7)]
_Seconds = Annotated[float, Interval(ge=1, lt=1e10)]
_Segments = Documented({"uniqueItems": True, "maxItems": MAX_SEGMENTS})
_Classes = Documented({"uniqueItems": True, "maxItems": MAX_WATCHED_CLASSES})


@dataclass(frozen=True)
class EvidenceSettings:
    """What decides the state of a monitor: objective, error rate and window."""

    #: The largest acceptable calibration error.
    objective: Fraction = 0.05
    #: The largest difference of accuracy and confidence, or of the frequency of class 1 and P(y =
    #: 1), that is not drift.
    tolerance: Tolerance = 0.02
    #: The probability of ever calling a good calibrator stale, over all versions, segments and
    #: classes of the model.
    alpha: Fraction = 0.05
    #: The assumed largest ratio of the labelling rates of right and wrong predictions at similar
    #: confidences, in both directions. Above 1, states follow from the interval of the error under
    #: every such selection of labels.
    selection_ratio: Annotated[float, Interval(ge=1, le=MAX_SELECTION_RATIO)] = 1.0
    #: With fewer labels, a window has no state. `labels_needed` of the evidence are enough.
    least_labels: _Labels = 300
    #: Labels of a window; at least `least_labels`.
    window_labels: _Labels = 4_000

    #: The longest time of predictions that is expected to have no labels, such as a night or a
    #: weekend. Its predictions are assumed to be like the others.
    label_pause_seconds: Annotated[float, Interval(ge=0, lt=1e10)] = 0.0

    def evidence_settings(self) -> dict[str, Any]:
        """Return the fields of this class by name, for another of its subclasses."""
        return {known.name: getattr(self, known.name) for known in fields(EvidenceSettings)}


@dataclass(frozen=True)
class MonitoringSettings(EvidenceSettings):
    """Monitoring settings of a model; fields that are not set have their defaults."""

    # pydantic reads it: requests have no other fields.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    #: Time to wait for the label of a prediction; later labels do not count.
    maturity_seconds: _Seconds = 86_400.0
    #: Length of a cohort of predictions that is assessed at once.
    cohort_seconds: _Seconds = 3_600.0
    #: Values of `segment` that are monitored separately; all others are monitored together.
    #: Segments can only be added at the end of the list.
    segments: Annotated[tuple[Annotated[str, NAME], ...], _Segments] = ()
    #: Classes whose probabilities are monitored: names, or indices as text; `all` as the only entry
    #: is every class. Without `capture`, only predictions of a class count.
    classes: Annotated[tuple[Annotated[str, STORABLE], ...], _Classes] = ()
    #: Share of the predictions with ids whose logits are kept for refitting.
    capture: Annotated[float, Interval(ge=0, le=1)] = 0.0
    #: Time for which these logits are kept.
    capture_seconds: _Seconds = 14 * 86_400.0
    #: Whether a stale calibrator is refitted automatically.
    refit: Literal["on_stale", "manual"] = "on_stale"
    #: Refit at this interval, in every state.
    refit_every_seconds: Annotated[float, Interval(ge=60, lt=1e10)] | None = None
    #: Whether a candidate that is proven better becomes the champion automatically.
    promote: Literal["automatic", "manual"] = "automatic"
    #: `shadow`: estimate label shift from predictions with logits, and learn from labels what
    #: answers adapted to it would gain; answers are not changed. `label_shift`: also adapt the
    #: answers of the champion, by the weight that labels give. Both need `capture`.
    adaptation: Literal["none", "shadow", "label_shift"] = "none"

    def __post_init__(self) -> None:
        check_fields(self, prefix="")
        if self.adaptation != "none" and not self.capture:
            found = f"{self.adaptation} with capture 0"
            raise InputError("adaptation", found=found, accepted="none, or a capture above 0")
        for name, limit in (("segments", MAX_SEGMENTS), ("classes", MAX_WATCHED_CLASSES)):
            entries = getattr(self, name)
            if not len(set(entries)) == len(entries) <= limit:
                found = f"{len(entries)} {name}, {len(set(entries))} of them different"
                accepted = f"at most {limit:,}, all different"
                raise InputError(name, found=found, accepted=accepted)
        for index, segment in enumerate(self.segments):
            check_name(f"segments[{index}]", segment)

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return the settings of a model's row; fields of a later version are ignored."""
        known = cls.__dataclass_fields__
        values = {name: value for name, value in (stored or {}).items() if name in known}
        lists = {name: tuple(values.get(name, ())) for name in ("segments", "classes")}
        return cls(**{**values, **lists})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {**asdict(self), "segments": list(self.segments), "classes": list(self.classes)}

    def check_change(self, to: MonitoringSettings) -> None:
        """Raise `ConflictError` if a segment would change its number, which old ids contain."""
        if to.segments[: len(self.segments)] != self.segments:
            raise ConflictError(
                f"the segments are {', '.join(self.segments)}, and new segments can only be "
                f"appended to them, found {', '.join(to.segments) or 'none'}"
            )
