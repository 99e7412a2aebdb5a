"""Monitor states: decide one of four states from the evidence, with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from recalib.core.monitoring_settings import EvidenceSettings
from recalib.core.time_text import time_text
from recalib.drift.expected_performance import ExpectedPerformance
from recalib.drift.target import PROMISES, TARGET_NAMES, Target, TargetNames

State = Literal["fresh", "unverified", "suspect", "stale"]
#: From best to worst.
STATES: tuple[State, ...] = ("fresh", "unverified", "suspect", "stale")
#: The field of `Evidence` that shows a warning, by its name.
_WARNINGS = {
    "labels_stopped": "silent_since",
    "labels_rare": "rare_since",
    "rows_dependent": "dependent",
    "rows_repeated": "has_repeats",
}


@dataclass(frozen=True)
class Evidence:
    """The evidence for a state; a value without data is None."""

    #: Labels of the test, its log E now, the threshold of log E, and the label that reached it.
    labels: int
    log_evidence: float
    threshold: float
    rejected_at: int | None
    #: Time of that label's prediction, or else the end of its cohort, in seconds.
    rejected_time: float | None
    #: The logarithm of the CUSUM, None without labels, and the threshold of the state `suspect`.
    suspicion: float | None
    suspicion_threshold: float
    #: First and last prediction time of the window, in seconds.
    window_start: float | None
    window_end: float | None
    #: n, N, n/N, and whether n/N depends on confidence (`Coverage`); `coverage_p_value` is also
    #: None if this cannot be tested.
    n: int
    traffic: int
    coverage: float | None
    coverage_p_value: float | None
    selective: bool
    #: The share of traffic about which labels say nothing (`Window.silent`), and which it is.
    silent: float
    silent_reason: str | None
    #: Mean seconds from prediction to label, accuracy, and mean confidence.
    delay: float | None
    accuracy: float | None
    confidence: float | None
    #: See `Window`.
    ece: float | None
    ece_floor: float | None
    ece_low: float | None
    ece_high: float | None
    #: The assumed largest ratio of labelling rates of right and wrong predictions, and the interval
    #: for ECE under it (`Window`); None without an assumption.
    selection_ratio: float | None
    selection_low: float | None
    selection_high: float | None
    ce: float | None
    ce_low: float | None
    ce_high: float | None
    #: PSI of the served confidences against the calibration set, see `confidence_shift`;
    #: `psi_covered` is whether the confidences of the window are distributed like the served ones.
    psi: float | None
    psi_threshold: float | None
    psi_covered: bool
    #: With `positive_class`, `accuracy` is the frequency of class 1, `confidence` the mean of
    #: P(y = 1), and all other numbers are of these pairs too.
    target: Target = "top_label"
    #: The number of labels in the window where a group counts once; None as n.
    units: int | None = None
    #: See `Dependence`: how much more sums of at least this number of neighbouring residuals vary
    #: than those of independent rows, None with few labels, and whether this is beyond chance.
    dependence: float | None = None
    dependence_rows: int | None = None
    dependent: bool = False
    #: See `Repeats`: rows without a group that repeat the probability of one close by, of this
    #: number of rows, and whether these are more than discrete scores explain.
    repeats: int | None = None
    repeats_rows: int | None = None
    has_repeats: bool = False
    #: Prediction time since which there are no labels, in seconds; None if labels arrive.
    silent_since: float | None = None
    #: Prediction time since which labels are rare, their share of predictions since then and in the
    #: rest of the window, and the factor by which this widens the interval; None otherwise.
    rare_since: float | None = None
    rare_coverage: float | None = None
    usual_coverage: float | None = None
    rare_widening: float | None = None
    #: Accuracy, F1 and AUC of all predictions of the window, labelled or not, if they are still
    #: calibrated; None where the state is stale.
    expected: ExpectedPerformance | None = None
    #: The number of labels with which a calibrated version is fresh about as often as not; None
    #: with fewer than 100 labels, with silent traffic, or with an assumed selection.
    labels_needed: int | None = None

    @property
    def shifted(self) -> bool:
        """Whether the PSI exceeds its threshold."""
        return self.psi is not None and self.psi > (self.psi_threshold or 0.0)

    @property
    def size(self) -> int:
        """The number of labels in the window where a group counts once."""
        return self.n if self.units is None else self.units

    @property
    def error_low(self) -> float | None:
        """Lower end of the interval for ECE, under the assumed selection if there is one."""
        return self.ece_low if self.selection_low is None else self.selection_low

    @property
    def error_high(self) -> float | None:
        """Upper end of the interval for ECE, under the assumed selection if there is one."""
        return self.ece_high if self.selection_high is None else self.selection_high

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def warnings_in(evidence: Mapping[str, Any]) -> list[str]:
    """Return what evidence as JSON warns of, whatever the state; earlier versions lack fields."""
    return [name for name, field in _WARNINGS.items() if evidence.get(field) not in (None, False)]


class Decision(NamedTuple):
    """A state with the reason for it, one sentence."""

    state: State
    reason: str
    #: Whether labels are evidence against the calibrator, and this may come from their selection.
    may_be_selection: bool


def decide_state(evidence: Evidence, settings: EvidenceSettings) -> Decision:
    """Return the state and the reason for it.

    - stale: the test has rejected, E ≥ 1/α, that accuracy is within `tolerance` of confidence;
    - suspect: the CUSUM is at its threshold, or the whole interval of the window's ECE is above
      `objective`, or confidences have shifted and no labels show that this is harmless;
    - fresh: at least `least_labels` labels in the window, and the interval of its ECE, which is for
      all traffic with and without labels, ends below `objective`;
    - unverified: none of these.

    The interval of ECE is the one under the assumed selection of labels, if there is an assumption.
    Evidence from labels may come from their selection if their rates depend on the confidence, or
    if this cannot be tested, unless selection cannot explain the error of the window.
    """
    names = TARGET_NAMES[evidence.target]
    state, reason = _decide(evidence, names, settings)
    if evidence.silent_reason is not None:
        reason += f"; {evidence.silent_reason}"
    if evidence.rare_since is not None:
        reason += (
            f"; labels are rare since {time_text(evidence.rare_since)}"
            f" ({evidence.rare_coverage:.1%} of predictions, {evidence.usual_coverage:.1%} before),"
            f" which makes the interval about {evidence.rare_widening:.1f} times as wide"
        )
    if evidence.dependent:
        reason += (
            f"; neighbouring rows depend on each other (sums of {evidence.dependence_rows} or more"
            f" vary {evidence.dependence:.1f} times as much as those of independent rows), so that"
            " alarms and intervals cannot be trusted: give such rows a `group`"
        )
    if evidence.has_repeats:
        reason += (
            f"; {evidence.repeats:,} of {evidence.repeats_rows:,} rows repeat the probability of a"
            " row close by, more than discrete scores explain: give retries and copies a `group`"
        )
    if evidence.selective:
        reason += f"; labels come more often for some {names.values} than for others"
    if not _is_from_labels(evidence, state, settings):
        return Decision(state, reason, False)
    if not evidence.selective and evidence.coverage_p_value is not None:
        return Decision(state, reason, False)
    if _least_error(evidence) > settings.tolerance:
        reason += "; a selection of labels by outcome cannot explain this"
        if evidence.selection_ratio is not None:
            reason += f" up to a ratio of {evidence.selection_ratio:g}"
        return Decision(state, reason, False)
    if not evidence.selective:
        reason += f"; label rates cannot be compared between {names.values}"
    return Decision(state, f"{reason}; this may come from the selection of labels", True)


def _is_from_labels(evidence: Evidence, state: State, settings: EvidenceSettings) -> bool:
    """Return whether labels are evidence against the calibrator, and not only a shift."""
    if state == "stale":
        return True
    is_large = (
        evidence.size >= settings.least_labels and (evidence.error_low or 0.0) > settings.objective
    )
    suspicion = evidence.suspicion
    return is_large or (suspicion is not None and suspicion >= evidence.suspicion_threshold)


def _least_error(evidence: Evidence) -> float:
    """Return the smallest ECE of all traffic that the assumed selection of labels allows.

    Without an assumption, all predictions without labels may be right, or wrong: this moves the
    accuracies of bins by at most the share of these predictions.
    """
    if evidence.selection_low is not None:
        return evidence.selection_low
    return (evidence.ece_low or 0.0) - (1 - (evidence.coverage or 0.0))


def _decide(
    evidence: Evidence, names: TargetNames, settings: EvidenceSettings
) -> tuple[State, str]:
    objective, least_labels = settings.objective, settings.least_labels
    if evidence.rejected_at is not None:
        relation = f"not within {settings.tolerance:.1%} of"
        if evidence.target in PROMISES.values():
            margin = f"more than {settings.tolerance:.1%} " if settings.tolerance else ""
            relation = f"{margin}below"
        return "stale", (
            f"{names.frequency} is {relation} {names.probability}: the test"
            f" rejected this after"
            f" {evidence.rejected_at:,} labels (log E reached {evidence.threshold:.2f})"
        )
    if evidence.suspicion is not None and evidence.suspicion >= evidence.suspicion_threshold:
        return "suspect", (
            f"recent labels look miscalibrated (log suspicion {evidence.suspicion:.2f}, level"
            f" {evidence.suspicion_threshold:.2f}), but the test does not confirm this yet"
            f" (log E {evidence.log_evidence:.2f} of {evidence.threshold:.2f})"
        )
    enough = evidence.size >= least_labels and evidence.ece is not None
    if enough and (evidence.error_low or 0.0) > objective:
        return "suspect", (
            f"{_describe_ece(evidence)}, the whole interval above the objective of"
            f" {objective:.1%}; the test does not confirm this yet"
            f" (log E {evidence.log_evidence:.2f} of {evidence.threshold:.2f})"
        )
    is_calibrated = enough and evidence.error_high is not None and evidence.error_high < objective
    if evidence.shifted and not (is_calibrated and evidence.psi_covered):
        return "suspect", (
            f"the {names.values} served have shifted (PSI {evidence.psi:.3f}, threshold"
            f" {evidence.psi_threshold:.3f}), and no labels show that this is harmless"
        )
    if is_calibrated:
        shift = f", although {names.values} have shifted" if evidence.shifted else ""
        return "fresh", f"{_describe_ece(evidence)}, below the objective of {objective:.1%}{shift}"
    if not enough:
        reason = (
            f"{_describe_labels(evidence, 'matured ')} in the window, fewer than the"
            f" {least_labels:,} needed"
        )
    else:
        reason = f"{_describe_ece(evidence)}, not below the objective of {objective:.1%} yet"
    if evidence.labels_needed is not None:
        about = float(f"{max(evidence.labels_needed, least_labels):.1e}")
        reason += f"; a calibrated version is fresh after about {about:,.0f} labels"
    return "unverified", reason


def _describe_ece(evidence: Evidence) -> str:
    selection = ""
    if evidence.selection_low is not None:
        selection = (
            f", {evidence.selection_low:.1%} to {evidence.selection_high:.1%} if labelling rates of"
            f" right and wrong predictions differ by a factor up to {evidence.selection_ratio:g}"
        )
    return (
        f"{TARGET_NAMES[evidence.target].error} {evidence.ece:.1%} on {_describe_labels(evidence)}"
        f" (interval {evidence.ece_low:.1%} to {evidence.ece_high:.1%}{selection}, noise floor"
        f" {evidence.ece_floor:.1%})"
    )


def _describe_labels(evidence: Evidence, kind: str = "") -> str:
    groups = f", {evidence.size:,} with each group once," if evidence.size < evidence.n else ""
    return f"{evidence.n:,} {kind}labels{groups}"
