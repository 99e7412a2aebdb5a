"""The monitoring of a model: state, evidence, windows, history and candidates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from recalib.contract.alerts import Alert
from recalib.contract.base import Page, Resource, Time, one_of

CalibrationState = Literal["fresh", "unverified", "suspect", "stale"]
_EVIDENCE = (
    "The numbers behind the state, as fractions: the `target` of all of them, `positive_class` for "
    "P(y = 1) of two classes, `top_label` for the confidence, `set_coverage` for sets or "
    "`accepted` for accepted rows; `log_evidence` of the test and its `threshold`; `ece`, its "
    "noise floor `ece_floor` and interval of the latest window of `n` "
    "labels; the unbiased `ce`; `psi` of what is served and its `psi_threshold`; `coverage` of "
    "labels and whether they are `selective`; the share of traffic without useful labels "
    "(`silent`), which it is (`silent_reason`), and the prediction time since which there are no "
    "labels (`silent_since`, in seconds); the prediction time since which labels are rare "
    "(`rare_since`), their share of predictions since then and before (`rare_coverage`, "
    "`usual_coverage`), and the factor by which the interval is wider (`rare_widening`); the "
    "number of labels with which a calibrated version is fresh (`labels_needed`); the interval of "
    "the error (`selection_low` to "
    "`selection_high`) under the model's `selection_ratio`; the labels, each group once (`units`), "
    "and whether rows depend on each other without a group (`dependent`: the variance of sums of "
    "`dependence_rows` rows or more is `dependence` times that of independent rows); of "
    "`repeats_rows` rows, how many repeat the probability of a row close by (`repeats`), and "
    "whether discrete scores do not explain them (`has_repeats`); mean `delay` of labels in "
    "seconds; "
    "`expected`, what all predictions of the window achieve if they are still calibrated, without "
    "labels: `accuracy`, of two classes also `f1` and `auc`, each with `value`, `low` and `high`; "
    "null where the state is stale. "
    "Null if there is no data."
)
_REPLAYED = "Whether it comes from a log of the past."
_MAY_BE_SELECTION = (
    "Whether labels are evidence against the calibrator, and this may come from their selection: "
    "label rates depend on the confidence, or this cannot be tested, and a selection by outcome "
    "can explain the error."
)


class SegmentReport(Resource):
    """The state of a segment; `(rest)` is the others, `(sets)` the coverage of prediction sets."""

    #: Name of the segment.
    segment: str
    #: State of the segment.
    state: Annotated[str, one_of(CalibrationState)]
    #: One sentence.
    reason: str
    evidence: dict[str, Any] = Field(description=_EVIDENCE)
    may_be_selection: bool = Field(description=_MAY_BE_SELECTION)


class WindowReport(Resource):
    """Metrics of one cohort of predictions, all segments together."""

    #: Start of the cohort, by prediction time.
    start: Time
    #: End of the cohort.
    end: Time
    #: `ece` with floor and interval, unbiased `ce` with interval, `accuracy`, `confidence`,
    #: `labelled` of `traffic`, `coverage`, the share of traffic without useful labels (`silent`),
    #: mean `delay` in seconds.
    measured: dict[str, Any]
    replayed: bool = Field(description=_REPLAYED)


class HistoryEntry(Resource):
    """A cohort of predictions, and the state after it."""

    #: Number of the version.
    version: int
    #: Start of the cohort, by prediction time.
    start: Time
    #: End of the cohort.
    end: Time
    #: When the cohort was read.
    assessed_at: Time
    #: The state after it.
    state: Annotated[str, one_of(CalibrationState)]
    #: One sentence.
    reason: str
    evidence: dict[str, Any] = Field(description=_EVIDENCE)
    #: As in `windows` of the monitoring.
    measured: dict[str, Any]
    replayed: bool = Field(description=_REPLAYED)


class HistoryPage(Page[HistoryEntry]):
    """A page of the history of monitoring, newest first."""


class MonitoringEvent(Resource):
    """A change of state, or an action that follows from it."""

    #: When.
    at: Time
    #: Number of the version.
    version: int
    #: What happened.
    kind: str
    #: Who did it.
    actor: str
    #: Why, in one sentence.
    reason: str
    #: The numbers behind it.
    evidence: dict[str, Any]
    replayed: bool = Field(description=_REPLAYED)


class CandidateReport(Resource):
    """The latest version that is or was compared with the champion on the same predictions."""

    #: Number of the version.
    version: int
    #: Null during the comparison; `proven` is ready to be promoted by hand.
    verdict: Annotated[str, one_of(Literal["promoted", "dropped", "proven"])] | None
    #: When the comparison began.
    began_at: Time
    #: `labels` compared; `mean_difference` of Brier scores, above 0 if the candidate is better;
    #: `log_evidence` that it is better, `log_evidence_against` that it is not better by a relevant
    #: amount, and the `threshold` of both.
    evidence: dict[str, Any]


class MonitoringReport(Resource):
    """The calibration state of a model's champion."""

    #: Name of the model.
    model: str
    #: Version of the champion; null if there is none.
    version: int | None
    #: `fresh`: enough labels confirm it; `unverified`: labels are too few or too old; `suspect`:
    #: something has changed; `stale`: a test with error probability at most `alpha` has rejected
    #: it.
    state: Annotated[str, one_of(CalibrationState)]
    #: Start of the state.
    since: Time | None
    #: One sentence.
    reason: str
    evidence: dict[str, Any] = Field(description=_EVIDENCE)
    may_be_selection: bool = Field(description=_MAY_BE_SELECTION)
    #: Estimated start of the drift, by prediction time.
    onset: Time | None
    #: Of a suspect or stale champion: how wrong it is since the onset, where, and what to do; null
    #: otherwise, and without labels.
    alert: Alert | None
    #: The state of each segment.
    segments: list[SegmentReport]
    #: Matured cohorts, newest first.
    windows: list[WindowReport]
    #: Labels that arrived too late to count.
    late_labels: int
    #: When the last cohort was read; null before the first.
    assessed_at: Time | None
    #: Newest first.
    events: list[MonitoringEvent]
    #: The candidate; null without one.
    candidate: CandidateReport | None
    #: Evidence of the watched classes: `log_evidence` of their mean and its `threshold`; number of
    #: `labels`; `worst`: the classes with the most evidence, with mean `probability` and
    #: `frequency` in the range (`low`, `high`) where they differ most, and whether it is
    #: `rejected`; `windows`: for each class that was predicted in the latest window, its
    #: `predictions`, how many are `labelled`, `accuracy` and `confidence` of these, and whether the
    #: class is `silent`. Null without watched classes.
    classes: dict[str, Any] | None
    #: Label shift: `number` of the last state and its time (`since`), in seconds; class shares
    #: `before` and now (`priors`), and by how many nats per row they explain answers better
    #: (`gain`); by how many nats adapted answers were better (`evidence`) on `labels`, and the
    #: `weight` that follows. `applied` is the weight in answers of servers, 0 in shadow, and
    #: `served` by how many nats the answers that were given were better than without adaptation.
    #: Null without it.
    adaptation: dict[str, Any] | None
    #: Predictions whose logits are kept for refitting.
    captured_rows: int
    #: Predictions before this time come from a log of the past; null without one.
    replayed_through: Time | None
    #: Why the champion cannot stay fresh under the settings, and what to do.
    warnings: tuple[str, ...]


class Ready(Resource):
    """Whether requests can be served."""

    #: Whether requests can be served.
    ready: bool
    #: Whether the database answers.
    registry: Annotated[str, one_of(Literal["reachable", "unreachable"])]
    #: Number of aliases and versions that this process has loaded.
    loaded: int
    #: What is wrong or unusual, in words; otherwise empty.
    detail: str
