"""What a model wants watched: how well calibrated it must be, and what is kept to see whether."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from recalib.errors import ConflictError, InputError
from recalib.registry.resource_names import check_name

__all__ = ["MAX_SEGMENTS", "MonitoringConfig"]

#: Segments of a model: storage grows with them, and evidence is shared out among them. A
#: prediction id has room for 255.
MAX_SEGMENTS = 100


@dataclass(frozen=True)
class MonitoringConfig:
    """Declared on a model, and changed at any time; what is not said has these defaults."""

    #: The calibration error that is still good, a fraction.
    objective: float = 0.05
    #: How far a probability may be off before the test takes it for drift, a fraction.
    tolerance: float = 0.02
    #: The probability of ever calling a calibrator stale that is not, over all of its versions.
    alpha: float = 0.05
    #: How long after a prediction its label is waited for, in seconds. Predictions are looked at
    #: only then: before, those whose labels come first are no fair sample.
    maturity_seconds: float = 86_400.0
    #: Predictions are looked at in cohorts of so long, in seconds.
    cohort_seconds: float = 3_600.0
    #: Labels below which nothing is said, and labels that are enough for a window, which never
    #: holds fewer than that.
    least_labels: int = 300
    window_labels: int = 4_000
    #: Values of the request's label `segment` that are watched by themselves; others, and none,
    #: count as the rest. Their order numbers them, so that the list may only grow.
    segments: tuple[str, ...] = ()
    #: Share of predictions with ids whose logits are kept, so that a new calibrator can be fitted.
    capture: float = 0.0
    #: How long they are kept, in seconds.
    capture_seconds: float = 14 * 86_400.0
    #: Whether a calibrator that has become stale is fitted anew without anybody's asking.
    refit: Literal["on_stale", "manual"] = "on_stale"
    #: Fit anew so often, in seconds, whatever the state; None for never.
    refit_every_seconds: float | None = None
    #: Whether a candidate that has proven better becomes the champion by itself.
    promote: Literal["automatic", "manual"] = "automatic"

    def __post_init__(self) -> None:
        _check("objective", self.objective, 0 < self.objective < 1, "above 0 and below 1")
        _check("tolerance", self.tolerance, 0 <= self.tolerance < 0.5, "from 0 to below 0.5")
        _check("alpha", self.alpha, 0 < self.alpha < 1, "above 0 and below 1")
        for name in ("maturity_seconds", "cohort_seconds", "capture_seconds"):
            _check(name, getattr(self, name), 1 <= getattr(self, name) < 1e10, "1 to 1e10 seconds")
        for name in ("least_labels", "window_labels"):
            _check(name, getattr(self, name), 2 <= getattr(self, name) <= 10**7, "2 to 1e7")
        every = self.refit_every_seconds
        _check("refit_every_seconds", every, every is None or 60 <= every < 1e10, "60 to 1e10")
        _check("capture", self.capture, 0 <= self.capture <= 1, "a share, 0 to 1")
        _check("refit", self.refit, self.refit in ("on_stale", "manual"), "on_stale, manual")
        promote = self.promote
        _check("promote", promote, promote in ("automatic", "manual"), "automatic, manual")
        many = len(self.segments)
        if many > MAX_SEGMENTS or len(set(self.segments)) < many:
            found = f"{many} segments, {len(set(self.segments))} of them different"
            accepted = f"at most {MAX_SEGMENTS}, all different"
            raise InputError("segments", found=found, accepted=accepted)
        for place, name in enumerate(self.segments):
            check_name(f"segments[{place}]", name)

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return what a model's row says; what a later version has stored besides is left alone."""
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in (stored or {}).items() if name in known}
        return cls(**{**given, "segments": tuple(given.get("segments", ()))})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "segments": list(self.segments)}

    def check_change(self, to: MonitoringConfig) -> None:
        """Raise `ConflictError` where segments would change their numbers: old ids carry those."""
        if to.segments[: len(self.segments)] != self.segments:
            raise ConflictError(
                f"the segments are {', '.join(self.segments)}, and others can only come behind "
                f"them, not {', '.join(to.segments) or 'take their place'}"
            )


def _check(field: str, found: object, legal: bool, accepted: str) -> None:
    if not legal:
        raise InputError(field, found=repr(found)[:80], accepted=accepted)
