"""A fitted calibrator: parameters and a card, without code."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator.file_bytes import parameter_file, read_parameter_file
from recalib.calibrator.graph import onnx_graph
from recalib.calibrator.notebook import calibrator_table
from recalib.calibrator.ort_sessions import CalibratorSession, has_onnxruntime
from recalib.calibrator.reference import predict_by_numpy
from recalib.calibrator.segments import OFFSETS, adjust, check_offsets, offsets_of
from recalib.core.arrays import (
    RESEMBLANCE_HINT,
    Floats,
    WeightKind,
    check_logits,
    check_probabilities,
    log_probabilities,
    probability_resemblance,
)
from recalib.core.card import Card, Rejection
from recalib.core.class_names import as_class_scores, class_indices, like
from recalib.core.inputs import as_array, check_index, counted_rows, score_matrix
from recalib.core.label_arrays import check_label_scores, label_log_odds, label_resemblance
from recalib.core.options import check_choice, configure
from recalib.errors import CorruptError, InputError, RecalibWarning
from recalib.files import write_atomically
from recalib.maps import MAPS, Map, Parameters, card_options
from recalib.maps.labels import LABEL_MAPS
from recalib.ops.base import Array, Ops
from recalib.sets.conformal import check_thresholds
from recalib.sets.predictor import SetPredictor
from recalib.sets.rejection import resolve_rejection

if TYPE_CHECKING:
    from recalib.metrics.evaluation import Evaluation
    from recalib.torch import CalibratorModule

#: Batches up to this size are computed in float64 NumPy: a call of onnxruntime takes 20 us between
#: other work, and 9 us in a tight loop.
SMALL_BATCH = 256

_OUTPUTS = ("probabilities",)

_Input = Literal["logits", "probabilities"]


class Calibrator(SetPredictor):
    """A fitted map from logits (N, K) to calibrated probabilities (N, K).

    Parameters
    ----------
    parameters: the fitted arrays, float64, as the map named in the card declares them.
    card: the description of the calibrator.

    Raises
    ------
    CorruptError: parameters or options that are illegal for the map named in the card.

    Examples
    --------
    >>> calibrator = recalib.fit(logits, labels)
    >>> calibrator.predict(new_logits).shape
    (400, 3)
    >>> calibrator.card.map, calibrator.card.classes
    ('temperature', 3)
    """

    def __init__(self, parameters: Parameters, card: Card) -> None:
        self.card = card
        self._session = CalibratorSession()
        self.parameters = {name: np.asarray(v, np.float64) for name, v in parameters.items()}
        try:
            maps: Mapping[str, type[Map]] = LABEL_MAPS if self.is_multilabel else MAPS
            self.map: Map = configure(
                maps, card.map, card_options(card.map, card.options), field="map"
            )
        except InputError as error:
            raise CorruptError(f"the card does not describe a map: {error}") from None
        of_map = dict(self.parameters)
        offsets = of_map.pop(OFFSETS, None)
        self.map.check(card.classes, of_map)
        if card.segments is not None or offsets is not None:
            check_offsets(card, offsets)
        if card.sets is not None:
            check_thresholds(card, card.sets)
        if card.rejection is not None:
            self._check_rejection(card.rejection)

    @property
    def is_multilabel(self) -> bool:
        """Whether rows have any number of labels, each with its own probability."""
        return self.card.task == "multilabel"

    @property
    def common(self) -> Calibrator:
        """The calibrator without segments, which has the probabilities of rows without one."""
        if self.card.segments is None:
            return self
        of_map = {name: v for name, v in self.parameters.items() if name != OFFSETS}
        return Calibrator(of_map, msgspec.structs.replace(self.card, segments=None))

    def __repr__(self) -> str:
        return f"<Calibrator {self.card.map} of {self.card.classes} classes>"

    def _repr_html_(self) -> str:
        return calibrator_table(self)

    def __eq__(self, other: object) -> bool:
        """Return whether card and parameters are equal."""
        if not isinstance(other, Calibrator):
            return NotImplemented
        return self.card == other.card and all(
            np.array_equal(value, other.parameters[name]) for name, value in self.parameters.items()
        )

    def __hash__(self) -> int:
        return hash(self.card.to_json())

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes with a session of their own, as `CalibratorSession` says."""
        return vars(self) | {"_session": copy(self._session)}

    def predict(self, values: Any, segments: Any = None, *, input: _Input | None = None) -> Any:
        """Return calibrated probabilities, (N, K), as an array, or as a data frame of one.

        float64 input gives float64. float16 and float32 give float32, computed by onnxruntime
        unless the batch is small or `recalib[onnx]` is not installed.

        Parameters
        ----------
        values: logits (−inf masks a class) or probabilities, (N, K), or (N,) for class 1 of 2, as
            in `recalib.fit`. A data frame keeps its index, and columns with the names of the
            classes may have any order. Dense predictions are arrays
            (N, K, ...), such as (N, K, H, W); the result has this shape.
        segments: of each row, with the columns of the fit, as in `recalib.fit_segments`. Rows
            without a segment have the probabilities of `common`; so have values that the fit has
            not seen, with a `RecalibWarning`.
        input: which of the two `values` are, by default what the calibrator was fitted on. If that
            is logits, values that look like probabilities cause a `RecalibWarning`.

        Raises
        ------
        InputError: invalid values (see `recalib.core.arrays`), another K than the card's, another
            `input` than the fit's if the map is not shift invariant, or segments of other columns,
            of dense predictions or of a calibrator without.

        Examples
        --------
        >>> calibrator.predict(new_logits[:2]).round(2)
        array([[0.25, 0.5 , 0.25],
               [0.03, 0.64, 0.33]])
        """
        kind = input or self.card.input
        if getattr(values, "ndim", 2) > 2 and not self.is_multilabel:
            if segments is not None:
                found = f"shape {np.shape(values)}, with segments"
                raise InputError("values", found=found, accepted="(N, K), or (N,)")
            return self._predict_dense(as_array(values, field=kind), input)
        logits = self.to_logits(as_class_scores(values, self.card.labels, kind), kind)
        reason = label_resemblance if self.is_multilabel else probability_resemblance
        if input is None and kind == "logits" and (why := reason(logits)):
            hint = RESEMBLANCE_HINT
            if not self.map.shift_invariant:
                hint = 'if these are probabilities, give log-odds or fit with input="probabilities"'
            message = f"values: {why}, but the calibrator takes logits; {hint}"
            warnings.warn(message, RecalibWarning, stacklevel=2)
        is_wide = logits.dtype == np.float64
        predict = self.predict_float64 if is_wide else self.predict_float32
        offsets = None if segments is None else self.offsets_of(segments, len(logits))
        probabilities = predict(logits, offsets)
        return like(values, probabilities, self.card.labels)

    predict_proba = predict

    def _predict_dense(self, values: NDArray[Any], input: _Input | None) -> Floats:
        """Return probabilities (N, K, ...), one image at a time."""
        is_wide = values.dtype.kind != "f" or values.dtype == np.float64
        result = np.empty(values.shape, np.float64 if is_wide else np.float32)
        for image, probabilities in zip(values, result, strict=True):
            rows = np.moveaxis(image, 0, -1)
            answer = self.predict(rows.reshape(-1, rows.shape[-1]), input=input)
            probabilities[...] = np.moveaxis(answer.reshape(rows.shape), -1, 0)
        return result

    def evaluate(
        self,
        values: Any,
        labels: ArrayLike,
        *,
        input: _Input | None = None,
        sample_weight: ArrayLike | None = None,
        weight_kind: WeightKind = "survey",
        ignore_index: int | None = None,
        metrics: Iterable[str] | None = None,
        intervals: bool = False,
        floors: bool | None = None,
        level: float = 0.95,
    ) -> Evaluation[Any]:
        """Return metrics of the calibrated probabilities of labelled rows, by name.

        The result is that of `recalib.evaluate(labels, calibrator.predict(values))`; of a
        calibrator with segments it is about `common`.

        Parameters
        ----------
        values, input: as in `predict`.
        labels: (N,), integers in [0, K), or names of the card's classes; (N, ...) for dense
            predictions.
        sample_weight, weight_kind, metrics, intervals, floors, level: as in `recalib.evaluate`.
        ignore_index: the label of rows that do not count, as in `recalib.fit`.

        Raises
        ------
        InputError: invalid input, or an unknown metric.

        Examples
        --------
        >>> metrics = calibrator.evaluate(new_logits, new_labels, metrics=["accuracy", "nll"])
        >>> round(metrics["accuracy"], 2)
        0.68
        """
        from recalib.metrics.evaluate import evaluate
        from recalib.metrics.evaluation import select_parts

        if self.is_multilabel:
            raise InputError(
                "labels",
                found="a multilabel calibrator",
                accepted='recalib.evaluate(labels, calibrator.predict(values), task="multilabel")',
            )
        kind = input or self.card.input
        check_index(**{kind: values, "labels": labels, "sample_weight": sample_weight})
        if ignore_index is not None or getattr(values, "ndim", 2) > 2:
            scores = as_class_scores(values, self.card.labels, kind)
            rows = counted_rows(score_matrix(scores, kind, kind), labels, ignore_index, kind)
            values, labels = rows.scores, rows.labels
            sample_weight = rows.of_rows(sample_weight, "sample_weight")
        probabilities = np.asarray(self.predict(values, input=input))
        indices, _ = class_indices(labels, self.card.classes, self.card.labels)
        estimates = evaluate(
            indices,
            probabilities=probabilities,
            sample_weight=sample_weight,
            weight_kind=weight_kind,
            metrics=metrics,
            level=level if intervals or floors else None,
        )
        return select_parts(estimates, intervals, floors)

    def map_batches(
        self,
        data: Any,
        *,
        column: str | Sequence[str] | None = None,
        output: str = "probabilities",
    ) -> Any:
        """Return batches of a data engine with a column of calibrated probabilities.

        This is the function that `mapInArrow` of Spark, `map_batches` of Ray and Polars,
        `map_partitions` of Dask and `create_function` of DuckDB take. A calibrator can be pickled;
        each process has one session, with one thread. Of a calibrator with segments, the
        probabilities are those of `common`.

        Parameters
        ----------
        data: an Arrow table, record batch or reader; a frame of pandas or polars; a dictionary of
            arrays; an iterator of these; or an Arrow column or a polars series of lists, which
            returns a column.
        column: the name of the column of lists, or the names of one column for each class. By
            default `logits` or `probabilities`, whichever the calibrator was fitted on; otherwise
            the columns with the names of its classes, or `logit_0`, `logit_1`, ... as in files.
        output: the name of the new column; a column of that name is replaced.

        Raises
        ------
        InputError: columns are missing or of another type, or values that `predict` refuses.

        Examples
        --------
        >>> list(calibrator.map_batches({"logits": new_logits}))
        ['logits', 'probabilities']
        """
        from recalib.files.batches import add_lists, map_stream, read_parts

        card = self.card

        def probabilities(scores: Floats) -> Floats:
            if not len(scores):
                dtype = np.float64 if scores.dtype == np.float64 else np.float32
                return np.zeros((0, card.classes), dtype)
            return np.asarray(self.predict(scores))

        def calibrate(batch: Any) -> Any:
            parts = read_parts(batch, card.input, column=column, class_names=card.labels)
            return add_lists(batch, output, (probabilities(scores) for scores, _ in parts))

        return map_stream(data, calibrate)

    def offsets_of(self, segments: Any, rows: int) -> NDArray[np.float64]:
        """Return the summed offsets (N, 1 + K) of the segments of each row; see `predict`."""
        if self.card.segments is None:
            accepted = "none: the calibrator has none, see recalib.fit_segments"
            raise InputError("segments", found="segments", accepted=accepted)
        return offsets_of(self.card.segments, self.parameters[OFFSETS], segments, rows)

    def offsets_of_values(self, values: NDArray[np.str_]) -> NDArray[np.float64] | None:
        """Return offsets (N, 1 + K) of values of the one column of segments; None without."""
        by_value = self.offsets_by_value()
        none = np.zeros((1, 1 + self.card.classes))
        rows = [by_value.get(value, none) for value in values.tolist()]
        return np.concatenate(rows) if by_value and rows else None

    def offsets_by_value(self) -> dict[str, NDArray[np.float64]]:
        """Return the offsets (1, 1 + K) of each segment of one column; empty without segments."""
        if self.card.segments is None:
            return {}
        rows = np.expand_dims(self.parameters[OFFSETS], 1)
        return {of.value: row for of, row in zip(self.card.segments.segments, rows, strict=True)}

    def predict_float32(
        self, logits: Floats, offsets: NDArray[np.float64] | None = None
    ) -> NDArray[np.float32]:
        """Return probabilities in float32 for checked logits; used by servers and files.

        Parameters
        ----------
        offsets: of `offsets_of`, or one row for all rows; None for the common map.
        """
        if offsets is not None:
            return adjust(self.predict_float32(logits), offsets)
        if logits.size <= SMALL_BATCH or not has_onnxruntime():
            return self.predict_rounded(logits)
        feed = {"logits": logits.astype(np.float32, copy=False)}
        return self.session.run(_OUTPUTS, feed)[0]

    def accepts(self, input: str) -> bool:
        """Return whether values may be `input`: that of the fit, or either if equivalent."""
        # Logits and their log-probabilities are equivalent for a shift-invariant map.
        # Log-odds of labels and their probabilities always are.
        return input == self.card.input or self.map.shift_invariant or self.is_multilabel

    def to_logits(self, values: ArrayLike, input: _Input) -> Floats:
        """Return checked logits from `values`, which are of the kind `input`."""
        self._check_input(input)
        if self.is_multilabel:
            scores = check_label_scores(values, input=input, classes=self.card.classes)
            return scores if input == "logits" else label_log_odds(scores)
        if input == "logits":
            return check_logits(values, classes=self.card.classes)
        return log_probabilities(check_probabilities(values, classes=self.card.classes))

    def apply_mask(self, ops: Ops, logits: Array) -> Array:
        """Return logits (N, K) with −inf where the card's rule says so."""
        return logits if self.card.mask is None else self.card.mask.apply(ops, logits)

    def predict_float64(
        self, logits: Floats, offsets: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return probabilities in float64 by NumPy for checked logits: the reference."""
        result = predict_by_numpy(self, logits, np.float64)
        return result if offsets is None else adjust(result, offsets)

    def predict_rounded(self, logits: Floats) -> NDArray[np.float32]:
        """Return `predict_float64` rounded to float32, in half of its memory."""
        return predict_by_numpy(self, logits, np.float32)

    def to_onnx(self, *, probabilities_only: bool = False) -> bytes:
        """Return the map as an ONNX graph: `logits` float32 [N, K] to `probabilities`.

        Parameters
        ----------
        probabilities_only: whether to leave out the further outputs: `sets`, bool [N, K], of a
            calibrator with thresholds; `accepted`, bool [N, 1], of one with a threshold of
            rejection; and `intervals`, float32 [N, K, 2], of the map `venn_abers`.

        Raises
        ------
        PackageError: the package onnx is not installed (`recalib[onnx]`).
        InputError: a calibrator with segments; `common` has a graph.
        """
        self._check_common("graph")
        return onnx_graph(self, probabilities_only=probabilities_only)

    def to_torch(self, *, input: _Input | None = None) -> CalibratorModule:
        """Return the map as a `torch.nn.Module`; see `recalib.torch.CalibratorModule`.

        Parameters
        ----------
        input: what the module takes, by default what the calibrator was fitted on.

        Raises
        ------
        InputError: as in `predict`, or a calibrator with segments; `common` has a module.
        """
        from recalib.torch import CalibratorModule

        self._check_common("module")

        kind = input or self.card.input
        self._check_input(kind)
        if self.is_multilabel and kind == "probabilities":
            found = "probabilities of a multilabel calibrator"
            raise InputError("input", found=found, accepted="logits: the log-odds of each label")
        return CalibratorModule(
            self.map, self.card.classes, self.parameters,
            input=kind, mask=self.card.mask, sets=self.card.sets, rejection=self.card.rejection,
        )  # fmt: skip

    @property
    def session(self) -> Any:
        """The onnxruntime session, created on first use; small batches do not need it.

        Copies from pickles share the session of equal copies in the process.
        """
        return self._session.get(self)

    def configure_session(self, threads: int) -> None:
        """Run the session on `threads` threads with memory shared between sessions.

        A server uses one thread because it has several processes. A session's own memory would
        grow to the size of its largest batch and keep it; sessions configured here share one arena.
        """
        self._session.threads, self._session.shares_memory = threads, True

    def to_bytes(self) -> bytes:
        """Return the parameter file's bytes: safetensors with the card in its metadata."""
        return parameter_file(self.card, self.parameters)

    @classmethod
    def from_bytes(cls, data: bytes) -> Calibrator:
        """Return the calibrator in a parameter file's bytes; raise `CorruptError` if invalid."""
        return cls(*read_parameter_file(data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameter file atomically; if the name ends in `.onnx`, the graph of `to_onnx`.

        Examples
        --------
        >>> calibrator.save("best.calib")
        >>> recalib.load("best.calib").card.map
        'temperature'
        >>> calibrator.save("best.onnx")  # onnxruntime runs it
        """
        is_graph = Path(path).suffix.lower() == ".onnx"
        write_atomically(Path(path), self.to_onnx() if is_graph else self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibrator:
        """Read a parameter file.

        Raises
        ------
        InputError: the file does not exist.
        CorruptError: the file is damaged or not a parameter file.
        """
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except CorruptError as error:
            raise CorruptError(f"calibrator {path}: {error}") from None
        except OSError as error:
            raise InputError(
                "calibrator", found=f"{path} ({error.strerror})", accepted="a .calib file"
            ) from None

    def _check_common(self, target: str) -> None:
        if self.card.segments is not None:
            accepted = f"`calibrator.common`: a {target} has no input for segments"
            raise InputError("calibrator", found="one with segments", accepted=accepted)

    def _check_rejection(self, rejection: Rejection) -> None:
        """Raise `CorruptError` for a threshold of rejection that no fit gives."""
        try:
            resolve_rejection(rejection)
        except InputError as error:
            raise CorruptError(f"the card has a rejection with {error}") from None
        if self.is_multilabel or not 0 <= rejection.errors <= rejection.accepted <= rejection.rows:
            found = f"{rejection.errors} errors of {rejection.accepted} in {rejection.rows} rows"
            raise CorruptError(f"the card has a rejection of {found}, {self.card.task}")

    def _check_input(self, input: str) -> None:
        check_choice("input", input, _Input)
        if not self.accepts(input):
            raise InputError(
                "input",
                found=f"{input}, while this {self.card.map} was fitted on {self.card.input}",
                accepted=self.card.input,
            )
