"""From evidence to one of four states, with one plain sentence that says why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["STATES", "Evidence", "State", "decide_state"]

State = Literal["fresh", "unverified", "suspect", "stale"]
#: From good to bad.
STATES: tuple[State, ...] = ("fresh", "unverified", "suspect", "stale")


@dataclass(frozen=True)
class Evidence:
    """All that a state is decided by; None where there is nothing to tell it from."""

    #: Labels that the test has seen, its log E now, what log E must reach, and where it did.
    labels: int
    log_evidence: float
    threshold: float
    rejected_at: int | None
    #: When that label's prediction was made, or its cohort ended, in seconds.
    rejected_time: float | None
    #: The logarithm of the cumulative sum, None before any label, and what it must reach to
    #: make suspect.
    suspicion: float | None
    suspicion_threshold: float
    #: Prediction times that the window begins and ends with, in seconds.
    window_start: float | None
    window_end: float | None
    #: n, N, n/N, and whether n/N depends on confidence (`Coverage.selective`).
    n: int
    traffic: int
    coverage: float | None
    coverage_p_value: float | None
    selective: bool
    #: Mean seconds from prediction to label, and the share of labels that were right.
    delay: float | None
    accuracy: float | None
    confidence: float | None
    #: See `Window`.
    ece: float | None
    ece_floor: float | None
    ece_low: float | None
    ece_high: float | None
    ce: float | None
    ce_low: float | None
    ce_high: float | None
    #: Of the confidences served against those of the calibration set, see `confidence_shift`;
    #: `psi_covered` is whether the window's labels are of confidences like those served now.
    psi: float | None
    psi_threshold: float | None
    psi_covered: bool

    @property
    def shifted(self) -> bool:
        """Whether confidences have changed beyond what chance explains."""
        return self.psi is not None and self.psi > (self.psi_threshold or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def decide_state(
    found: Evidence, *, objective: float, tolerance: float, least_labels: int
) -> tuple[State, str]:
    """Return the state and the reason for it.

    - stale: the test has rejected, E ≥ 1/α, that accuracy is within `tolerance` of confidence;
    - suspect: the cumulative sum is over its level, or the window's ECE is over `objective`
      with all of its interval, or confidences have shifted and no labels say that it is harmless;
    - fresh: at least `least_labels` labels in the window, and the interval of its ECE ends below
      `objective`;
    - unverified: none of these.
    """
    state, reason = _decided(found, objective, tolerance, least_labels)
    if found.selective:
        reason += "; labels come more often for some confidences than for others"
    return state, reason


def _decided(
    found: Evidence, objective: float, tolerance: float, least_labels: int
) -> tuple[State, str]:
    if found.rejected_at is not None:
        return "stale", (
            f"accuracy is not within {tolerance:.1%} of confidence: the test rejected that after"
            f" {found.rejected_at:,} labels (log E reached {found.threshold:.2f})"
        )
    if found.suspicion is not None and found.suspicion >= found.suspicion_threshold:
        return "suspect", (
            f"recent labels look miscalibrated (log suspicion {found.suspicion:.2f}, level"
            f" {found.suspicion_threshold:.2f}), which the test does not confirm yet"
            f" (log E {found.log_evidence:.2f} of {found.threshold:.2f})"
        )
    enough = found.n >= least_labels and found.ece is not None
    if enough and (found.ece_low or 0.0) > objective:
        return "suspect", (
            f"{_ece(found)}, all of it over the objective of {objective:.1%}, which the test does"
            f" not confirm yet (log E {found.log_evidence:.2f} of {found.threshold:.2f})"
        )
    good = enough and found.ece_high is not None and found.ece_high < objective
    if found.shifted and not (good and found.psi_covered):
        return "suspect", (
            f"the confidences served have shifted (PSI {found.psi:.3f}, threshold"
            f" {found.psi_threshold:.3f}), and no labels show that this is harmless"
        )
    if good:
        shift = ", although confidences have shifted" if found.shifted else ""
        return "fresh", f"{_ece(found)}, below the objective of {objective:.1%}{shift}"
    if not enough:
        return "unverified", (
            f"{found.n:,} matured labels in the window, fewer than the {least_labels:,} needed"
        )
    return "unverified", f"{_ece(found)}, not below the objective of {objective:.1%} yet"


def _ece(found: Evidence) -> str:
    return (
        f"ECE {found.ece:.1%} on {found.n:,} labels (interval {found.ece_low:.1%} to"
        f" {found.ece_high:.1%}, noise floor {found.ece_floor:.1%})"
    )
