"""The card of a calibrator: its map, options, data, fit and metrics.

Cards are JSON: in the metadata of a parameter file, in the registry and over REST. Metrics are
fractions, not percentages; times are ISO 8601 in UTC.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recalib.core.decoding import decoder_of
from recalib.core.masks import Mask
from recalib.errors import CorruptError

#: The version of the card's format; a reader rejects newer versions.
FORMAT = 1


class MetricValue(msgspec.Struct, frozen=True):
    """A metric's value, with its interval and its noise floor if they were computed."""

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None


class OperatingPoint(msgspec.Struct, frozen=True):
    """A threshold on P(y = 1), above which a row is predicted positive."""

    threshold: float
    #: The share of positive rows above it; None without positive rows.
    recall: float | None
    #: The share of rows above it that are positive; None without rows above it.
    precision: float | None


class Thresholds(msgspec.Struct, frozen=True):
    """Thresholds on the calibrated P(y = 1), measured on the rows of `Card.metrics`."""

    #: At 0.5.
    half: OperatingPoint
    #: Predicts what 0.5 predicted before the calibration; about that, if the map makes ties.
    equal: OperatingPoint


class DataSummary(msgspec.Struct, frozen=True):
    """The data that a calibrator was fitted on."""

    rows: int
    #: SHA-256 of the file's bytes, if the data came from a file.
    digest: str | None = None
    #: The data set's name in the registry, or the file's name.
    name: str | None = None


class Diagnostic(msgspec.Struct, frozen=True):
    """A reason to distrust a fit; its text is in the warnings."""

    #: Such as `nll above identity`, `class totals` or `repeated rows`; see
    #: `recalib.fitting.diagnostics`.
    kind: str
    values: dict[str, float]


class ScoreEstimate(msgspec.Struct, frozen=True):
    """A mean score on new rows, estimated from the rows of the fit; lower is better."""

    value: float
    #: Of `identity`, and of `temperature` if the rows have an error, on the same rows.
    references: dict[str, float]
    #: Of the paired differences from the references.
    standard_errors: dict[str, float]


class FitSummary(msgspec.Struct, frozen=True):
    """The result of the fit."""

    seconds: float
    iterations: int
    converged: bool
    #: The objective at the fitted parameters on the fitted data.
    objective: float
    #: Descriptions of the parameters that ended on a bound of their range.
    bounds_reached: tuple[str, ...] = ()
    #: Options of the map and the objective that were set by the fit. A fit with these values is the
    #: same.
    settled: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    #: Kish's size of the weighted rows, (Σw)² / Σw²; None for fits older than this field.
    effective_rows: float | None = None
    #: NLL, Brier score and error on new rows, by `nll`, `brier` and `error`; empty for few rows.
    estimates: dict[str, ScoreEstimate] = {}
    #: The reasons of the warnings that are about harm, as values.
    diagnostics: tuple[Diagnostic, ...] = ()


class PooledGain(msgspec.Struct, frozen=True):
    """The mean gain over the rows of several comparisons with one champion."""

    #: The number of comparisons.
    refits: int
    rows: int
    gain: float
    standard_error: float
    #: In standard errors.
    threshold: float


class Selection(msgspec.Struct, frozen=True):
    """Comparison with the previously served calibrator on held-out rows.

    Scores are mean negative log-likelihoods of rows by cross-validation, sums over labels if labels
    are independent; `standard_error` is that of their paired difference.
    """

    folds: int
    nll: float
    reference: str
    reference_nll: float
    standard_error: float
    better: bool
    reason: str
    #: Rows compared; None for comparisons older than this field.
    rows: int | None = None
    #: Calibration error of the new version on the compared rows, each under a fit without it: see
    #: `recalib.fitting.validation_error`.
    calibration_error: MetricValue | None = None
    #: The version of the reference; None for the uncalibrated probabilities.
    reference_version: int | None = None
    #: The standard errors by which the reference's NLL has to be higher; None if the rows allow no
    #: comparison.
    threshold: float | None = None
    #: The rule that applied; see `recalib.fitting.promotion`.
    rule: Literal["gain", "pooled gain", "more rows"] | None = None
    #: Of this and earlier refits, if there are any.
    pooled: PooledGain | None = None
    #: The data set of the compared rows, if the version was not fitted on it.
    dataset: str | None = None


#: Which predictions a map may change: any; for two classes, none of the order by P(y = 1); none of
#: the predicted classes.
PredictionPolicy = Literal["may_change", "keep_order", "keep"]


class CandidateResult(msgspec.Struct, frozen=True):
    """A candidate's scores on held-out folds; without scores if it did not compete."""

    map: str
    objective: str
    seconds: float
    chosen: bool
    #: The reason why it was chosen or not.
    verdict: str
    #: Means over held-out rows, with 95% intervals by bootstrap.
    nll: MetricValue | None = None
    brier: MetricValue | None = None
    #: Its NLL minus temperature scaling's on the same rows; negative is better.
    nll_difference: MetricValue | None = None
    #: Its weight in the choice, 0 if it is no part of it; None for choices older than this field.
    weight: float | None = None


class PolicyWinner(msgspec.Struct, frozen=True):
    """The best of the maps that a policy allows, on held-out folds, with 95% intervals."""

    predictions: PredictionPolicy
    #: The weight of each map: one map, or several that are mixed.
    members: dict[str, float]
    #: Whether it is the choice.
    chosen: bool
    nll: MetricValue
    accuracy: MetricValue
    #: Its own minus those of the winner of `keep`, on the same rows.
    nll_difference: MetricValue
    accuracy_difference: MetricValue
    #: The share of rows with another predicted class than the classifier's.
    changed: float


class AutoChoice(msgspec.Struct, frozen=True):
    """The reason for the choice of `auto`."""

    map: str
    objective: str
    reason: str
    #: The number of rows and folds of the cross-validation.
    rows: int
    folds: int
    #: Whether `predictions` is `keep`.
    preserve_accuracy: bool
    candidates: tuple[CandidateResult, ...]
    #: The policy that was asked for; None for choices older than this field.
    predictions: PredictionPolicy | None = None
    #: The share of uniform probabilities that was mixed into the classifier's before all maps.
    smoothing: float = 0.0
    #: The winner of each policy, also of those that were not asked for.
    winners: tuple[PolicyWinner, ...] = ()


class ConfidenceHistogram(msgspec.Struct, frozen=True):
    """Reference histogram of the monitored probabilities on the fitted rows.

    Bins are [edge, next edge), with edges at the quantiles of those probabilities.
    """

    #: The inner edges (B - 1,), ascending.
    edges: tuple[float, ...]
    #: Rows in each bin (B,).
    counts: tuple[int, ...]
    #: What the probabilities are, and so what is monitored: the confidence, or P(y = 1) of two
    #: classes. Cards of earlier versions have the confidence.
    target: Literal["top_label", "positive_class"] = "top_label"


class ReliabilityBins(msgspec.Struct, frozen=True):
    """Sums over rows in bins of the monitored probability: what a reliability diagram shows."""

    #: Rows in each bin (B,), the sum of their probabilities, and how many have the event; of
    #: weighted rows the sums of weights w, of w times the probability, and of w with the event.
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    correct: tuple[int | float, ...]
    #: Bins have equal widths, or equal widths of √p if class 1 of two is rare and the rows are in
    #: memory.
    is_root: bool = False
    #: Σw and Σw² of weighted rows; empty without weights.
    weight: tuple[float, ...] = ()
    squared_weight: tuple[float, ...] = ()


SetMethod = Literal["lac", "aps", "raps"]
#: The classes that share a threshold: all, none, or those of a cluster.
SetGroups = Literal["all", "class", "cluster"]


class SetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How thresholds of prediction sets are fitted; see `recalib.sets`."""

    method: SetMethod = "raps"
    #: The probability with which a set holds the label of its row.
    coverage: float = 0.9
    by: SetGroups = "all"
    #: Of `raps`: what each class beyond the first `k_reg` of a row adds to its score. The defaults
    #: are those of its paper's tables.
    penalty: float = 0.01
    k_reg: int = 5


class PredictionSets(SetOptions, frozen=True, kw_only=True):
    """Thresholds of conformal prediction sets, and how they were fitted."""

    #: One for all classes, or one for each (K,); None if every class is below it.
    thresholds: tuple[float | None, ...]
    #: The rows of the thresholds.
    rows: int
    #: The central 95% of the coverage on new rows, over draws of those rows: of all classes, or of
    #: the classes that share a threshold of the fewest rows. Of `aps` and `raps` without the rows
    #: whose set has the label only because it has the first class.
    low: float
    high: float
    #: Whether the map was not fitted on those rows, so that `coverage` holds for any number of
    #: them. False for out-of-fold thresholds: it holds approximately, and so do `low` and `high`.
    finite_sample: bool = True
    #: Of the out-of-fold probabilities; None for thresholds of rows that the map has not seen.
    folds: int | None = None
    #: Labelled rows that the thresholds followed since; see `recalib.sets.adaptive`.
    adapted: int = 0


class RejectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the threshold of rejection is fitted; see `recalib.sets.rejection`."""

    #: The error rate of accepted new rows, which stays with the probability `sureness`.
    risk: float
    sureness: float = 0.9


class Rejection(RejectionOptions, frozen=True, kw_only=True):
    """A threshold on the confidence below which rows are rejected, and its test."""

    threshold: float
    #: The rows of the test, which the map was not fitted on; those accepted, and their errors.
    rows: int
    accepted: int
    errors: int


class Segment(msgspec.Struct, frozen=True):
    """A segment of the rows of a fit; see `recalib.fit_segments`."""

    column: str
    value: str
    rows: int
    #: The mean NLL on held-out folds without offsets of segments minus that with them.
    gain: float
    #: Of the gain; None for one row.
    standard_error: float | None = None


class SegmentSummary(msgspec.Struct, frozen=True):
    """Offsets by segment, and how they were fitted."""

    columns: tuple[str, ...]
    segments: tuple[Segment, ...]
    #: `none`, `temperature` for a factor of log p, or `vector` for a factor and a bias a class.
    form: str
    #: Of the penalty; see `recalib.fit_segments`.
    strength: float
    rows: int
    #: As of `Segment`, of all rows, for the best offsets, also if they were not chosen.
    gain: float
    standard_error: float


class Claims(msgspec.Struct, frozen=True):
    """What an uploaded card states about the calibrator, and the server has not measured."""

    metrics: dict[str, dict[str, MetricValue]] = {}
    calibration_error: MetricValue | None = None
    choice: AutoChoice | None = None


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """All data of a calibrator except its parameters."""

    format: int = FORMAT
    #: `multilabel`: each label has its own probability, and rows need no sum of 1.
    task: Literal["multiclass", "multilabel"] = "multiclass"
    map: str
    objective: str
    #: All options of the map, defaults included.
    options: dict[str, Any] = {}
    #: All options of the objective.
    objective_options: dict[str, Any] = {}
    #: K.
    classes: int
    #: Names of the classes, if known.
    labels: tuple[str, ...] | None = None
    #: The input of the fit: logits, or probabilities as clipped log-probabilities.
    input: Literal["logits", "probabilities"] = "logits"
    #: The rule of logits that stand for −inf, if the rows of the fit have such a constant.
    mask: Mask | None = None
    #: The version of Recalib that fitted it.
    library: str
    created_at: str
    data: DataSummary
    fit: FitSummary
    #: `before` and `after` the map, on the fitted data: in sample, so slightly optimistic. Of an
    #: uploaded calibrator, on the rows that it was compared on, which it was not fitted on.
    metrics: dict[str, dict[str, MetricValue]] = {}
    #: `before` and `after` on the same rows; empty for independent labels, and for fits older than
    #: this field.
    reliability: dict[str, ReliabilityBins] = {}
    #: On the fitted data, if it was measured; see `recalib.fitting.validation_error`.
    calibration_error: MetricValue | None = None
    #: The reference for served confidences, or P(y = 1); None for fits older than this field.
    confidences: ConfidenceHistogram | None = None
    #: Of two classes; None for fits older than this field.
    thresholds: Thresholds | None = None
    #: Present if thresholds of prediction sets were fitted.
    sets: PredictionSets | None = None
    #: Present if a threshold of rejection was fitted.
    rejection: Rejection | None = None
    #: Present if the parameters have offsets by segment.
    segments: SegmentSummary | None = None
    selection: Selection | None = None
    #: Present if the policy `auto` chose the map.
    choice: AutoChoice | None = None
    #: The classifier's name in the registry.
    model: str | None = None
    #: Present if the calibrator was fitted elsewhere and uploaded. `data` and `fit` are also as the
    #: uploaded card states them.
    claimed: Claims | None = None

    def to_json(self) -> str:
        """Return the card as JSON."""
        return msgspec.json.encode(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain dictionaries and lists."""
        return msgspec.json.decode(self.to_json())

    @classmethod
    def from_json(cls, text: str | bytes) -> Card:
        """Return the card in `text`; raise `CorruptError` if it is invalid or newer."""
        try:
            card = decoder_of(cls).decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the card cannot be read: {error}") from None
        if card.format > FORMAT:
            raise CorruptError(
                f"the card has format {card.format}; this version reads up to {FORMAT}"
            )
        if card.classes < 2:
            raise CorruptError(f"the card names {card.classes} class(es)")
        return card
