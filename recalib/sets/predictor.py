"""Prediction sets and intervals of a calibrator: what `Calibrator` inherits.

Legend: N rows, K classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Floats, check_labels
from recalib.core.card import Card, PredictionSets, RejectionOptions, SetMethod, SetOptions
from recalib.core.class_names import as_class_scores, class_indices
from recalib.core.inputs import check_index
from recalib.errors import InputError
from recalib.maps import Map
from recalib.maps.venn_abers import VennAbers
from recalib.ops import NumpyOps
from recalib.ops.base import Array, Ops
from recalib.sets.adaptive import adapt_sets
from recalib.sets.conformal import (
    SetCoverage,
    conformal_sets,
    evaluate_sets,
    prediction_sets,
    resolve_sets,
)
from recalib.sets.rejection import accepts, rejection_threshold
from recalib.sets.venn_abers import intervals

_Input = Literal["logits", "probabilities"]


class SetPredictor(ABC):
    """The prediction sets and intervals of a calibrator; its thresholds are in its card."""

    map: Map
    parameters: dict[str, NDArray[np.float64]]
    card: Card

    @abstractmethod
    def __init__(self, parameters: dict[str, NDArray[np.float64]], card: Card) -> None: ...

    @abstractmethod
    def predict(self, values: Any, *, input: _Input | None = None) -> Any:
        """Return calibrated probabilities."""

    @abstractmethod
    def to_logits(self, values: ArrayLike, input: _Input) -> Floats:
        """Return checked logits."""

    @abstractmethod
    def apply_mask(self, ops: Ops, logits: Array) -> Array:
        """Return logits with −inf for impossible classes."""

    def predict_interval(self, values: Any, *, input: _Input | None = None) -> NDArray[np.float64]:
        """Return the Venn-Abers interval [p0, p1] of each probability, (N, K, 2).

        If rows are exchangeable, the one of p0 and p1 for the true label is calibrated. `predict`
        gives p1 / (1 − p0 + p1), of more than two classes divided by its sum over classes, which
        intervals are not. Of two classes that of y = 0 is [1 − p1, 1 − p0].

        Parameters
        ----------
        values, input: as in `predict`, (N, K) or (N,).

        Raises
        ------
        InputError: another map than `venn_abers`, or as in `predict`.

        Examples
        --------
        >>> calibrator = recalib.fit(logits, labels, "venn_abers")  # doctest: +SKIP
        >>> low, high = calibrator.predict_interval(new_logits)[:, 1].T  # doctest: +SKIP
        """
        kind = input or self.card.input
        scores = as_class_scores(values, self.card.labels, kind)
        return self.intervals_of(self.to_logits(scores, kind))

    def intervals_of(self, logits: Floats) -> NDArray[np.float64]:
        """Return `predict_interval` of checked logits."""
        if not isinstance(self.map, VennAbers) or self.card.segments is not None:
            found = "segments" if self.card.segments else f"the map {self.card.map}"
            accepted = "a calibrator of the map venn_abers, without segments"
            raise InputError("calibrator", found=found, accepted=accepted)
        wide = self.apply_mask(NumpyOps(), logits.astype(np.float64, copy=False))
        return intervals(NumpyOps(), self.map, wide, self.parameters)

    def predict_set(self, values: Any, *, input: _Input | None = None) -> NDArray[np.bool_]:
        """Return whether each class is in the prediction set of a row, (N, K).

        A set holds the label with the probability `card.sets.coverage`, as long as new rows are
        like those of the thresholds; see `fit_sets`.

        Parameters
        ----------
        values, input: as in `predict`.

        Raises
        ------
        InputError: a calibrator without thresholds, or as in `predict`.

        Examples
        --------
        >>> with_sets = recalib.fit(logits, labels, sets="raps", coverage=0.9)
        >>> with_sets.predict_set(new_logits[:3])
        array([[ True,  True, False],
               [False,  True,  True],
               [False,  True,  True]])
        """
        kind = input or self.card.input
        probabilities = self._matrix(values, input)
        scores = as_class_scores(values, self.card.labels, kind)
        return self.sets_of(probabilities, self.to_logits(scores, kind))

    def sets_of(self, probabilities: Floats, logits: Floats) -> NDArray[np.bool_]:
        """Return the prediction sets (N, K) of calibrated probabilities of checked logits.

        Raises
        ------
        InputError: a calibrator without thresholds.
        """
        sets = self._fitted_sets()
        masked: NDArray[np.bool_] = np.equal(self.apply_mask(NumpyOps(), logits), -np.inf)
        return prediction_sets(probabilities, sets, masked)

    def fit_sets(
        self,
        values: Any,
        labels: ArrayLike,
        sets: SetMethod | SetOptions = "raps",
        coverage: float | None = None,
        *,
        input: _Input | None = None,
    ) -> Self:
        """Return this calibrator with thresholds of prediction sets from held-out rows.

        Parameters
        ----------
        values, input: as in `predict`, of rows that the map was not fitted on: on its own rows the
            sets are too small, and the promise does not hold.
        labels: (N,), as in `evaluate`.
        sets, coverage: as in `recalib.fit`.

        Raises
        ------
        InputError: invalid input, or too few rows for the coverage.

        Examples
        --------
        >>> with_sets = calibrator.fit_sets(new_logits, new_labels, coverage=0.9)
        >>> with_sets.card.sets.coverage
        0.9
        """
        probabilities, indices = self.labelled(values, labels, input)
        options = resolve_sets(sets, coverage) or SetOptions()
        return self.with_sets(conformal_sets(probabilities, indices, options))

    def with_sets(self, sets: PredictionSets) -> Self:
        """Return this calibrator with other thresholds in its card."""
        return type(self)(self.parameters, msgspec.structs.replace(self.card, sets=sets))

    def adapt_sets(
        self, values: Any, labels: ArrayLike, *, rate: float = 0.005, input: _Input | None = None
    ) -> Self:
        """Return this calibrator with thresholds that follow labelled rows, in their order.

        Adaptive conformal inference: call it whenever labels arrive. The share of rows whose sets
        hold the label then comes to the coverage under any drift, which fixed thresholds do not
        promise; see `recalib.sets.adaptive.adapt_sets`.

        Parameters
        ----------
        values, input: as in `predict`, the oldest row first.
        labels: (N,), as in `evaluate`.
        rate: how far a row whose set missed its label moves the threshold of the scores.

        Raises
        ------
        InputError: invalid input, a calibrator without thresholds, or a rate that is not above 0.

        Examples
        --------
        >>> calibrator = calibrator.adapt_sets(logits, labels)  # doctest: +SKIP
        """
        return self.with_sets(
            adapt_sets(*self.labelled(values, labels, input), self._fitted_sets(), rate)
        )

    def fit_rejection(
        self,
        values: Any,
        labels: ArrayLike,
        max_risk: float,
        sureness: float = 0.9,
        *,
        input: _Input | None = None,
    ) -> Self:
        """Return this calibrator with the threshold of confidence below which rows are rejected.

        Of the new rows that it accepts, at most a share `max_risk` is wrong, with the probability
        `sureness`; see `recalib.sets.rejection`. The card has it as `rejection`.

        Parameters
        ----------
        values, input: as in `predict`, of rows that the map was not fitted on; nor is the card's
            histogram `confidences` of them, whose edges say where the tests begin.
        labels: (N,), as in `evaluate`.
        max_risk, sureness: in (0, 1).

        Raises
        ------
        InputError: invalid input, or too few rows for such a risk.

        Examples
        --------
        >>> calibrator = calibrator.fit_rejection(held_out, its_labels, 0.1)  # doctest: +SKIP
        >>> calibrator.is_accepted(new_logits).mean()  # doctest: +SKIP
        """
        options = RejectionOptions(risk=max_risk, sureness=sureness)
        return self.with_rejection(*self.labelled(values, labels, input), options)

    def with_rejection(
        self, p_nk: NDArray[np.float64], labels: NDArray[np.intp], options: RejectionOptions
    ) -> Self:
        """Return this calibrator with the threshold of rejection that held-out rows give."""
        correct = p_nk.argmax(axis=1) == labels
        rejection = rejection_threshold(p_nk.max(axis=1), correct, options, self.card.confidences)
        card = msgspec.structs.replace(self.card, rejection=rejection)
        return type(self)(self.parameters, card)

    def is_accepted(self, values: Any, *, input: _Input | None = None) -> NDArray[np.bool_]:
        """Return whether the confidence of each row reaches the threshold of rejection, (N,).

        Parameters
        ----------
        values, input: as in `predict`.

        Raises
        ------
        InputError: a calibrator without this threshold, or as in `predict`.

        Examples
        --------
        >>> calibrator.is_accepted(new_logits)  # doctest: +SKIP
        """
        if self.card.rejection is None:
            accepted = "one fitted with max_risk=, or by fit_rejection"
            raise InputError("calibrator", found="no threshold of rejection", accepted=accepted)
        return accepts(self._matrix(values, input), self.card.rejection)

    def evaluate_sets(
        self, values: Any, labels: ArrayLike, *, input: _Input | None = None
    ) -> SetCoverage:
        """Return how often the prediction sets of rows hold their labels, with 95% intervals.

        Parameters
        ----------
        values, input: as in `predict`.
        labels: (N,), as in `evaluate`.

        Raises
        ------
        InputError: invalid input, or a calibrator without thresholds.

        Examples
        --------
        >>> with_sets = calibrator.fit_sets(logits, labels, coverage=0.9)
        >>> round(with_sets.evaluate_sets(new_logits, new_labels).coverage, 2)
        0.88
        """
        check_index(values=values, labels=labels)
        sets = self.predict_set(values, input=input)
        indices, _ = class_indices(labels, self.card.classes, self.card.labels)
        return evaluate_sets(sets, check_labels(indices, logits=sets.astype(np.float64)))

    def _fitted_sets(self) -> PredictionSets:
        if self.card.sets is None:
            accepted = "one fitted with sets=, or by fit_sets"
            raise InputError("calibrator", found="no prediction sets", accepted=accepted)
        return self.card.sets

    def labelled(
        self, values: Any, labels: ArrayLike, input: _Input | None
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return probabilities (N, K) and the index of each label (N,), of rows of one label."""
        check_index(values=values, labels=labels)
        if self.card.segments is not None:
            accepted = "its `common`: thresholds and offsets are of one map"
            raise InputError("calibrator", found="one with segments", accepted=accepted)
        indices, _ = class_indices(labels, self.card.classes, self.card.labels)
        probabilities = self._matrix(values, input)
        return probabilities, check_labels(indices, logits=probabilities)

    def _matrix(self, values: Any, input: _Input | None) -> NDArray[np.float64]:
        """Return probabilities (N, K) of rows of one label each."""
        if self.card.task == "multilabel":
            accepted = "a calibrator of one label for each row"
            raise InputError("calibrator", found="a multilabel calibrator", accepted=accepted)
        return np.asarray(self.predict(values, input=input), np.float64)
