"""Monitoring settings of a model: objective, cohorts, segments, logit sampling and refits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from recalib.core.watched_classes import MAX_WATCHED_CLASSES
from recalib.drift.selection import MAX_SELECTION_RATIO
from recalib.errors import ConflictError, InputError
from recalib.registry.resource_names import check_name

#: Largest number of segments of a model: storage grows with it, and α is shared among segments. A
#: prediction id has room for 255.
MAX_SEGMENTS = 100


@dataclass(frozen=True)
class MonitoringConfig:
    """Settings of a model with their defaults; they may change at any time."""

    #: The largest acceptable calibration error (ECE), a fraction.
    objective: float = 0.05
    #: The deviation of a probability that does not count as drift, a fraction.
    tolerance: float = 0.02
    #: The probability of ever calling a good calibrator stale, over all versions of the model.
    alpha: float = 0.05
    #: The assumed largest ratio of the labelling rates of right and wrong predictions, and of wrong
    #: and right ones, at similar confidences; 1 if labels do not depend on the outcome.
    selection_ratio: float = 1.0
    #: How long after a prediction its label may arrive, in seconds. Predictions are assessed only
    #: then: before, the labels that arrive early are no random sample.
    maturity_seconds: float = 86_400.0
    #: Length of a cohort of predictions, in seconds.
    cohort_seconds: float = 3_600.0
    #: Fewest labels of a window that counts as evidence, and labels at which a window is full. The
    #: larger of the two applies to the window.
    least_labels: int = 300
    window_labels: int = 4_000
    #: Values of the request's field `segment` with separate monitoring; all other predictions count
    #: as the rest. The position is the number of a segment, so values may only be appended.
    segments: tuple[str, ...] = ()
    #: Classes with separate monitoring: names or indices, or ("all",); see `class_indices`.
    classes: tuple[str, ...] = ()
    #: Share of predictions with ids whose logits are stored for refits.
    capture: float = 0.0
    #: How long the logits are stored, in seconds.
    capture_seconds: float = 14 * 86_400.0
    #: Whether a stale calibrator is refitted automatically.
    refit: Literal["on_stale", "manual"] = "on_stale"
    #: Refit at this interval in every state, in seconds; None for never.
    refit_every_seconds: float | None = None
    #: Whether a candidate that is proven better becomes the champion automatically.
    promote: Literal["automatic", "manual"] = "automatic"

    def __post_init__(self) -> None:
        _check("objective", self.objective, 0 < self.objective < 1, "above 0 and below 1")
        _check("tolerance", self.tolerance, 0 <= self.tolerance < 0.5, "from 0 to below 0.5")
        _check("alpha", self.alpha, 0 < self.alpha < 1, "above 0 and below 1")
        ratio = self.selection_ratio
        legal, accepted = 1 <= ratio <= MAX_SELECTION_RATIO, f"1 to {MAX_SELECTION_RATIO:g}"
        _check("selection_ratio", ratio, legal, accepted)
        for name in ("maturity_seconds", "cohort_seconds", "capture_seconds"):
            _check(name, getattr(self, name), 1 <= getattr(self, name) < 1e10, "1 to 1e10 seconds")
        for name in ("least_labels", "window_labels"):
            _check(name, getattr(self, name), 2 <= getattr(self, name) <= 10**7, "2 to 1e7")
        interval = self.refit_every_seconds
        _check(
            "refit_every_seconds", interval, interval is None or 60 <= interval < 1e10, "60 to 1e10"
        )
        _check("capture", self.capture, 0 <= self.capture <= 1, "a share, 0 to 1")
        _check("refit", self.refit, self.refit in ("on_stale", "manual"), "on_stale, manual")
        promote = self.promote
        _check("promote", promote, promote in ("automatic", "manual"), "automatic, manual")
        count = len(self.segments)
        if count > MAX_SEGMENTS or len(set(self.segments)) < count:
            found = f"{count} segments, {len(set(self.segments))} of them different"
            accepted = f"at most {MAX_SEGMENTS}, all different"
            raise InputError("segments", found=found, accepted=accepted)
        for index, name in enumerate(self.segments):
            check_name(f"segments[{index}]", name)
        count, different = len(self.classes), len(set(self.classes))
        accepted = f"at most {MAX_WATCHED_CLASSES:,}, all different"
        legal = different == count <= MAX_WATCHED_CLASSES
        _check("classes", f"{count} classes, {different} of them different", legal, accepted)

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return the settings of a model's row; fields of a later version are ignored."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in (stored or {}).items() if name in known}
        lists = {name: tuple(values.get(name, ())) for name in ("segments", "classes")}
        return cls(**{**values, **lists})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {**asdict(self), "segments": list(self.segments), "classes": list(self.classes)}

    def check_change(self, to: MonitoringConfig) -> None:
        """Raise `ConflictError` if a segment would change its number, which old ids contain."""
        if to.segments[: len(self.segments)] != self.segments:
            raise ConflictError(
                f"the segments are {', '.join(self.segments)}, and new segments can only be "
                f"appended to them, found {', '.join(to.segments) or 'none'}"
            )


def _check(field: str, found: object, legal: bool, accepted: str) -> None:
    if not legal:
        raise InputError(field, found=repr(found)[:80], accepted=accepted)
