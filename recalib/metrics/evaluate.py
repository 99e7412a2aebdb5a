"""Compute several metrics of the same predictions, from arrays or from a stream of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from recalib.core.array_bytes import state_from_bytes, state_to_bytes
from recalib.core.arrays import (
    Numbers,
    WeightKind,
    check_labels,
    check_logits,
    check_probabilities,
    check_row_weights,
    check_weights,
    refuse_first,
    repeated_rows,
)
from recalib.core.inputs import as_array, one_of
from recalib.core.options import check_choice, check_names
from recalib.core.segment_columns import segment_masks
from recalib.errors import CorruptError, InputError
from recalib.files import Input
from recalib.metrics import METRICS, Estimate, Metric, Predictions, State, StreamingMetric
from recalib.metrics.base import defined
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.state_versions import EARLIER, upgrade_sums
from recalib.stats.groups import row_chunks
from recalib.stats.sums import Means

__all__ = ["StreamingEvaluation", "evaluate", "measure_all"]

_MAX_BINS = 10_000

#: What the bytes of a `StreamingEvaluation` are, and the version of its sums.
_KIND, _VERSION = "evaluation", 4

#: The squares of smaller and larger weights leave the range of float64.
_MIN_WEIGHT, _MAX_WEIGHT = 1e-100, 1e100


def evaluate(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    metrics: Iterable[str] | None = None,
    bins: int = 15,
    level: float | None = None,
    segments: Any = None,
) -> Evaluation[Estimate]:
    """Return metrics of predictions by name, in the order of `METRICS`.

    Parameters
    ----------
    labels: (N,), integers in [0, K).
    logits: (N, K), or
    probabilities: (N, K); exactly one of the two.
    sample_weight: (N,), how many rows of the population each row stands for; on any scale.
    weight_kind: `counts` if a weight is how many equal rows a row replaces: metrics, intervals and
        floors are those of the repeated rows, and so is the memory.
    metrics: names in `METRICS`, or one name; by default all that are defined for K classes but
        those marked `on_request`, and with weights all of these that have a weighted form. A metric
        for which no row counts is left out.
    bins: the number of bins M of binned metrics.
    level: confidence of intervals, such as 0.95; none by default.
    segments: as in `recalib.evaluate`.

    Raises
    ------
    InputError: invalid input, an unknown metric, a metric that is not defined for K classes or has
        no weighted form, or both or neither of the two arrays.
    """
    _check_level(level)
    predictions = as_predictions(labels, logits=logits, probabilities=probabilities)
    options: dict[str, Any] = {"metrics": metrics, "bins": bins}
    result = measure_all(predictions, sample_weight, weight_kind, **options, level=level)
    if segments is None:
        return result
    weights = None if sample_weight is None else as_array(sample_weight, "sample_weight")
    masks = segment_masks(segments, len(predictions), weights)
    if level is not None:
        level = 1 - (1 - level) / max(len(masks), 1)
    parts: dict[str, Evaluation[Estimate]] = {}
    for (column, value), mask in masks.items():
        rows = np.flatnonzero(mask)
        w = None if weights is None else weights[rows]
        part = measure_all(predictions.take(rows), w, weight_kind, **options, level=level)
        part.rows = len(rows)
        parts[f"{column}={value}"] = part
    result.segments = parts
    return result


def measure_all(
    predictions: Predictions,
    sample_weight: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    *,
    metrics: Iterable[str] | None = None,
    bins: int = 15,
    level: float | None = None,
) -> Evaluation[Estimate]:
    """Return the metrics of predictions by name; parameters and errors as in `evaluate`."""
    chosen = _select(metrics, bins, predictions.classes)
    check_choice("weight_kind", weight_kind, WeightKind)
    if sample_weight is not None and weight_kind == "counts":
        rows = repeated_rows(sample_weight, rows=len(predictions), field="sample_weight")
        predictions, sample_weight = predictions.take(rows), None
    if sample_weight is not None:
        weights = _weights(sample_weight, len(predictions))
        chosen = _with_weighted_form(chosen, named=metrics is not None)
        if not weights.all():
            rows = np.flatnonzero(weights)
            predictions, weights = predictions.take(rows), weights[rows]
        sample_weight = weights if (weights != 1).any() else None
    states: dict[str, State] = {}
    return Evaluation(
        defined(chosen, lambda metric: _measure(metric, predictions, level, sample_weight, states))
    )


class StreamingEvaluation:
    """All default metrics of a stream of batches, in constant memory.

    Metrics that sort rows by confidence read a fine histogram instead, as docs/metrics.md says;
    `error_bounds` limits the difference. States are values: `merge` is associative, counts are
    exact, and other sums have errors of rounding that depend on the order. So the same parts,
    merged in the same order, give the same bytes.

    Parameters
    ----------
    classes: K.
    bins: the number of bins M of binned metrics.
    weighted: whether rows have sample weights, as in `evaluate`; the metrics are then those with a
        weighted form.

    Examples
    --------
    >>> evaluation = recalib.StreamingEvaluation(classes=3)
    >>> for first in range(0, 400, 100):
    ...     rows = slice(first, first + 100)
    ...     evaluation.add(labels[rows], logits=logits[rows])
    >>> round(evaluation.finish()["accuracy"].value, 2)
    0.64
    """

    def __init__(self, classes: int, bins: int = 15, *, weighted: bool = False) -> None:
        self.classes = classes
        self.bins = bins
        self.weighted = weighted
        metrics = _select(None, bins, classes)
        if weighted:
            metrics = _with_weighted_form(metrics, named=False)
        self._metrics: dict[str, StreamingMetric[State]] = {
            name: metric for name, metric in metrics.items() if isinstance(metric, StreamingMetric)
        }
        #: One metric of each kind of state, and the states.
        self._kinds = {metric.state_kind: metric for metric in self._metrics.values()}
        self._states = {
            kind: metric.state(classes, weighted=weighted) for kind, metric in self._kinds.items()
        }

    def add(
        self,
        labels: ArrayLike,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        weight_kind: WeightKind = "survey",
    ) -> None:
        """Add a batch: labels (n,) and exactly one of logits and probabilities (n, K).

        A stream with weights also takes `sample_weight` (n,), 1 by default; they are 0, or from
        1e-100 to 1e100. A stream without takes them as `counts`: whole numbers of equal rows that
        each row replaces. A rejected batch raises `InputError` and changes nothing.
        """
        check_choice("weight_kind", weight_kind, WeightKind)
        predictions = as_predictions(
            labels, logits=logits, probabilities=probabilities, classes=self.classes
        )
        if sample_weight is None:
            self.add_predictions(predictions)
            return
        if self.weighted == (weight_kind == "counts"):
            accepted = "survey" if self.weighted else "counts: this stream is not weighted"
            raise InputError("weight_kind", found=weight_kind, accepted=accepted)
        weights = _stream_weights(sample_weight, len(predictions))
        rows = np.flatnonzero(weights > 0)
        if self.weighted and len(rows):
            self.add_predictions(predictions.take(rows), weights[rows])
        elif len(rows):
            repeated = repeated_rows(weights, rows=len(weights), field="sample_weight")
            for part in row_chunks((len(repeated), self.classes)):
                self.add_predictions(predictions.take(repeated[part]))

    def add_predictions(self, predictions: Predictions, weights: Numbers | None = None) -> None:
        """Add a batch that is checked and has K classes, with positive weights, 1 by default."""
        for kind, metric in self._kinds.items():
            metric.add(self._states[kind], predictions, weights)

    def state(self, name: str) -> State:
        """Return the sums that the streaming metric `name` reads."""
        return self._states[self._metrics[name].state_kind]

    def map_batches(
        self,
        data: Any,
        *,
        input: Input = "probabilities",
        column: str | Sequence[str] | None = None,
    ) -> Any:
        """Return the evaluation of each batch of a data engine, as a table of one row.

        The column `evaluation` has the bytes of `to_bytes`. Their merge is the evaluation of all
        rows; rows that this evaluation has are not in it.

        Parameters
        ----------
        data: batches as in `Calibrator.map_batches`, with a column `label` or `labels`; an
            iterator gives one row for all its batches.
        input: whether the scores are probabilities or logits.
        column: their column or columns, as in `Calibrator.map_batches`.

        Raises
        ------
        InputError: columns are missing, or values are not valid.

        Examples
        --------
        >>> evaluation = recalib.StreamingEvaluation(classes=3)
        >>> p = calibrator.predict(logits)
        >>> parts = list(evaluation.map_batches({"label": labels, "probabilities": p}))
        """
        from recalib.files.batches import read_parts, single_value

        if self.weighted:
            raise InputError("sample_weight", found="a weighted stream", accepted="one without")
        part = StreamingEvaluation(self.classes, self.bins)
        is_stream = isinstance(data, Iterator)
        first = None
        for batch in data if is_stream else [data]:
            first = batch if first is None else first
            for scores, labels in read_parts(batch, input, column=column):
                if not len(scores):
                    continue
                if labels is None:
                    raise InputError("labels", found="no column", accepted="label or labels")
                values: dict[str, Any] = {input: scores}
                part.add(labels, **values)
        row = single_value(first, "evaluation", part.to_bytes())
        return iter([row]) if is_stream else row

    def merge(self, *others: StreamingEvaluation) -> StreamingEvaluation:
        """Return the evaluation of the rows of all; none of them changes.

        Raises
        ------
        ValueError: the classes or the bins differ, or some have weights.
        """
        merged = StreamingEvaluation(self.classes, self.bins, weighted=self.weighted)
        for other in (self, *others):
            if other._shape != self._shape:
                raise ValueError(
                    "evaluations of different classes or bins, or with and without weights, "
                    "cannot be merged"
                )
            merged._states = {
                kind: state.merge(other._states[kind]) for kind, state in merged._states.items()
            }
        return merged

    def finish(self, level: float | None = None) -> Evaluation[Estimate]:
        """Return the metrics of all rows so far, at least one; see `evaluate`.

        Raises
        ------
        InputError: all weights are 0.
        """
        _check_level(level)
        if self.weighted and self.rows == 0:
            raise InputError("sample_weight", found="zeros only", accepted="a positive weight")
        return Evaluation(
            defined(
                self._metrics,
                lambda metric: metric.estimate(self._states[metric.state_kind], level),
            )
        )

    def error_bounds(self) -> dict[str, float]:
        """Return for each metric a bound on its difference from `evaluate` on the same rows.

        It is 0 for metrics that are functions of sums; their values differ by rounding.
        """
        return {
            name: self._metrics[name].error_bound(self._states[self._metrics[name].state_kind])
            for name in self.finish()
        }

    def to_bytes(self) -> bytes:
        """Return the sums as safetensors with a version and a checksum.

        Equal evaluations have equal bytes. Pickles hold the same bytes.
        """
        arrays = {
            f"{kind}.{name}": np.asarray(getattr(state, name))
            for kind, state in self._states.items()
            for name in state.sums
        }
        return state_to_bytes(_KIND, _VERSION, arrays | {"shape": np.array(self._shape)})

    @classmethod
    def from_bytes(cls, data: bytes) -> StreamingEvaluation:
        """Return the evaluation in the result of `to_bytes`.

        Raises
        ------
        CorruptError: other or damaged bytes, or those of another version of Recalib.
        """
        version, arrays = state_from_bytes(_KIND, (_VERSION, EARLIER), data)
        try:
            if version == EARLIER:
                arrays = upgrade_sums(arrays)
            classes, bins, *weighted = arrays.pop("shape").tolist()
            evaluation = cls(classes, bins, weighted=weighted == [1])
            for kind, state in evaluation._states.items():
                for name in state.sums:
                    array, empty = arrays.pop(f"{kind}.{name}"), np.asarray(getattr(state, name))
                    if (array.shape, array.dtype) != (empty.shape, empty.dtype):
                        raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}")
                    # A copy is writable; a sum without axes is a number.
                    setattr(state, name, array.copy() if array.ndim else array.item())
            if arrays:
                raise ValueError(f"found {', '.join(arrays)}")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"not a streaming evaluation: {error}") from None
        return evaluation

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickles and copies are made of."""
        return StreamingEvaluation.from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        """Return whether classes, bins and sums are equal."""
        if not isinstance(other, StreamingEvaluation):
            return NotImplemented
        return self._shape == other._shape and self._states == other._states

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<StreamingEvaluation of {self.rows} rows, {self.classes} classes>"

    @property
    def rows(self) -> int:
        """The number of rows so far; in a stream with weights, of those with a positive one."""
        return cast(Means, self._states["accuracy"]).count

    @property
    def _shape(self) -> tuple[int, ...]:
        """K and M, and 1 with weights."""
        return (self.classes, self.bins, 1) if self.weighted else (self.classes, self.bins)


def _measure(
    metric: Metric,
    predictions: Predictions,
    level: float | None,
    weights: Numbers | None,
    states: dict[str, State],
) -> Estimate:
    """Return `metric.measure(...)`; metrics with the same kind of state share it in `states`.

    Metrics that override `measure`, such as equal-mass errors, are exact on rows and use no state.
    """
    if not (isinstance(metric, StreamingMetric) and metric.reads_state):
        return metric.measure(predictions, level, weights)
    kind = metric.state_kind
    if kind not in states:
        states[kind] = metric.state(predictions.classes, weighted=weights is not None)
        metric.add(states[kind], predictions, weights)
    return metric.estimate(states[kind], level)


def _select(names: Iterable[str] | None, bins: int, classes: int) -> dict[str, Metric]:
    """Return the metrics by name, in the order of `METRICS`; see `evaluate`."""
    if not 1 <= bins <= _MAX_BINS:
        raise InputError("bins", found=str(bins), accepted=f"1 to {_MAX_BINS}")
    known = {name: make for name, make in METRICS.items() if make.is_defined_for(classes)}
    if names is None:
        names = [name for name, make in known.items() if not make.on_request]
    selected = [names] if isinstance(names, str) else list(names)
    check_names("metrics", selected, METRICS)
    for name in selected:
        if name not in known:
            found = f"{name}, which is not defined for {classes} classes"
            raise InputError("metrics", found=found, accepted=", ".join(known))
    return {name: make(bins) for name, make in known.items() if name in selected}


def _with_weighted_form(metrics: dict[str, Metric], named: bool) -> dict[str, Metric]:
    """Return the metrics with a weighted form; raise an error for another if they were `named`."""
    weighted = {name: metric for name, metric in metrics.items() if metric.takes_weights}
    without = [name for name in metrics if name not in weighted]
    if named and without:
        names = [name for name, metric in METRICS.items() if metric.takes_weights]
        raise InputError(
            "metrics",
            found=f"{without[0]}, which has no weighted form, with sample_weight",
            accepted=", ".join(names),
        )
    return weighted


def _weights(sample_weight: ArrayLike, rows: int) -> Numbers:
    """Return checked weights (N,), near 1 if their squares leave the range of float64."""
    weights = as_array(sample_weight, "sample_weight")
    check_weights(weights, rows=rows, field="sample_weight")
    weights = weights.astype(np.float64)
    largest = weights.max()
    return weights if _MIN_WEIGHT <= largest <= _MAX_WEIGHT else weights / largest


def _stream_weights(sample_weight: ArrayLike, rows: int) -> Numbers:
    """Return checked weights (n,) of a batch, which may all be 0."""
    weights = check_row_weights(as_array(sample_weight, "sample_weight"), rows, "sample_weight")
    invalid = (weights > 0) & ((weights < _MIN_WEIGHT) | (weights > _MAX_WEIGHT))
    accepted = f"0, or {_MIN_WEIGHT:g} to {_MAX_WEIGHT:g}"
    refuse_first(invalid, weights, "sample_weight", accepted)
    return weights


def _check_level(level: float | None) -> None:
    if level is not None and not 0 < level < 1:
        raise InputError("level", found=str(level), accepted="a number between 0 and 1")


def as_predictions(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    classes: int | None = None,
) -> Predictions:
    """Return the predictions of logits or probabilities; `InputError` if they are invalid."""
    kind, scores = one_of(logits, probabilities)
    if kind == "logits":
        z = check_logits(scores, classes=classes)
        return Predictions.from_logits(z, check_labels(labels, logits=z))
    p = check_probabilities(scores, classes=classes)
    return Predictions.from_probabilities(p, check_labels(labels, logits=p))
