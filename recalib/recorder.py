"""What a training loop records of validation: metrics with intervals, logits, and a calibrator.

The callbacks of `recalib.lightning` and `recalib.transformers` use it, and a loop without them.

Legend: N rows, K classes.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from recalib.api import evaluate
from recalib.api.fit import fit
from recalib.calibrator import Calibrator
from recalib.core.arrays import check_labels, check_logits, check_probabilities
from recalib.core.inputs import as_array, counted_rows, score_matrix
from recalib.core.options import check_names
from recalib.core.packages import optional_packages
from recalib.errors import InputError, RecalibError, RecalibWarning
from recalib.files import write_npz
from recalib.fitting.request import resolve_fit
from recalib.metrics import METRICS
from recalib.metrics.evaluation import named_values
from recalib.metrics.headline import epoch_metrics

with optional_packages("recalib.recorder"):
    from torch import distributed

__all__ = ["CalibrationRecorder"]

_T = TypeVar("_T")
_Rows = tuple[NDArray[Any], NDArray[np.int64]]


class CalibrationRecorder:
    """Metrics of validation rows, over all processes, and files for `recalib fit`.

    `update` takes batches, `compute` ends an evaluation, `save` writes it, and `fit` fits a map to
    its rows. Under several processes, each of them calls these methods. Rows stay in memory until
    the next evaluation: 4 N K bytes, for float32.

    Parameters
    ----------
    folder: gets `metrics.jsonl`, a line for each evaluation, `validation.npz` with the rows of the
        last one, and `calibrator.calib`. Without a folder, nothing is written.
    metrics: names of metrics, see docs/metrics.md; by default accuracy, NLL, Brier score and ECE,
        of two classes also ROC AUC and the ECE of P(y = 1).
    bins: the number of bins of binned metrics.
    level: confidence of the intervals.
    input: whether scores are logits or probabilities.
    map: the map that `fit` fits; None for no fit at the end of a training.
    ignore_index: the label of rows that do not count.
    gather: returns the (scores, labels) of all processes, such as
        `Accelerator.gather_for_metrics`, which leaves out the rows that Accelerate repeats. By
        default the rows of all processes of torch.distributed are merged in `compute`.

    Raises
    ------
    InputError: an unknown metric or map.

    Examples
    --------
    >>> recorder = CalibrationRecorder(metrics=["accuracy"])
    >>> recorder.update([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]], [0, 0, -100])
    >>> recorder.compute()["accuracy"]
    0.5
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        metrics: Iterable[str] | None = None,
        bins: int = 15,
        level: float = 0.95,
        input: Literal["logits", "probabilities"] = "logits",
        map: str | None = "temperature",
        ignore_index: int = -100,
        gather: Callable[[tuple[Any, Any]], tuple[Any, Any]] | None = None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None and self.folder.suffix == ".jsonl":
            accepted = "the name of a folder, which gets metrics.jsonl"
            raise InputError("folder", found=str(folder), accepted=accepted)
        self._metrics = None if metrics is None else tuple(metrics)
        check_names("metrics", self._metrics or (), METRICS)
        if map is not None:
            resolve_fit(map, "nll", {})
        self.map = map
        self._options: dict[str, Any] = {"bins": bins, "level": level, "intervals": True}
        self.input, self.ignore_index, self._gather = input, ignore_index, gather
        self._parts: list[_Rows] = []
        #: On the first process, rows and metrics of the last evaluation.
        self._rows: _Rows | None = None
        self._values: dict[str, float] = {}
        #: The step of the last evaluation that was saved.
        self._step: int | None = None

    def update(self, scores: Any, labels: Any) -> None:
        """Add a batch.

        Parameters
        ----------
        scores: logits or probabilities (N, K), (N,) or (N, 1) of class 1 of 2, or (N, K, ...); on
            any device, of any floating-point dtype.
        labels: (N,), or (N, ...): integers in [0, K), or `ignore_index`.

        Raises
        ------
        InputError: invalid values; the batch is not added.
        """
        if self._gather is not None:
            scores, labels = self._gather((scores, labels))
        y = as_array(labels, "labels")
        if not (y != self.ignore_index).any():
            return
        scores = score_matrix(scores, self.input, self.input)
        rows = counted_rows(scores, y, self.ignore_index, self.input)
        check = check_logits if self.input == "logits" else check_probabilities
        values = check(rows.scores)
        kind = np.promote_types(values.dtype, np.float32)
        self._parts.append((values.astype(kind), check_labels(rows.labels, logits=values)))

    def reset(self) -> None:
        """Forget the batches since the last evaluation."""
        self._parts = []

    def compute(self) -> dict[str, float]:
        """Return the metrics of all rows of all processes, and start a new evaluation.

        `ece` has the ends of its interval beside it, `ece_low` and `ece_high`, and so have the
        others. A metric for which no row counts is left out, such as ROC AUC of one class.

        Raises
        ------
        InputError: no rows, or a metric that is not defined for K classes.
        """
        parts, self._parts = self._parts, []
        return self._on_first_process(self._measure, self._merge(parts))

    def save(self, **position: float) -> None:
        """Write the last evaluation into the folder.

        Parameters
        ----------
        position: what the line of `metrics.jsonl` begins with, such as `epoch` and `step`.

        Raises
        ------
        InputError: a folder that cannot be written.
        """
        self._step = int(position["step"]) if "step" in position else None
        self._on_first_process(self._write, position)

    def fit(self, **options: Any) -> Calibrator:
        """Return a calibrator of the rows of the last evaluation; write it into the folder.

        Parameters
        ----------
        options: of `recalib.fit`, such as `class_labels`.

        Raises
        ------
        InputError: as `recalib.fit`.
        """
        return self._on_first_process(self._fit, options)

    def fit_at_end(self, step: int | None, **options: Any) -> Calibrator | None:
        """Fit as the end of a training does: what prevents it is a `RecalibWarning`.

        Parameters
        ----------
        step: of the weights that the training delivers. The rows must be theirs.
        options: as in `fit`.
        """
        if self.map is None or self._step is None:
            return None
        if step != self._step:
            warnings.warn(
                f"no calibrator: the weights are those of step {step}, the logits those of "
                f"step {self._step}; validate the weights again",
                RecalibWarning,
                stacklevel=2,
            )
            return None
        try:
            return self.fit(**options)
        except RecalibError as error:
            warnings.warn(f"no calibrator: {error}", RecalibWarning, stacklevel=2)
            return None

    def _merge(self, parts: list[_Rows]) -> list[_Rows]:
        """Return the batches of all processes on the first one."""
        if self._gather is not None or _processes() == 1:
            return parts
        is_first = distributed.get_rank() == 0
        gathered: list[Any] | None = [None] * _processes() if is_first else None
        distributed.gather_object(parts, gathered)
        return [part for process in gathered or [] for part in process]

    def _on_first_process(self, function: Callable[[Any], _T], argument: Any) -> _T:
        """Return the result of a function on the first process; all processes raise its error."""
        if _processes() == 1:
            return function(argument)
        answer: list[Any] = [None]
        if distributed.get_rank() == 0:
            try:
                answer = [function(argument)]
            except RecalibError as error:
                answer = [error]
        distributed.broadcast_object_list(answer)
        if isinstance(answer[0], RecalibError):
            raise answer[0]
        return answer[0]

    def _measure(self, parts: list[_Rows]) -> dict[str, float]:
        if not parts:
            raise InputError("update", found="no batch", accepted="one or more before compute")
        scores, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        names = epoch_metrics(scores.shape[1]) if self._metrics is None else self._metrics
        scored: dict[str, Any] = {self.input: scores}
        estimates = evaluate(labels, **scored, metrics=names, **self._options)
        self._rows, self._values = (scores, labels), named_values(estimates)
        return self._values

    def _write(self, position: dict[str, float]) -> None:
        if self.folder is None:
            return
        scores, labels = self._evaluated()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_npz(self.folder / "validation.npz", **{self.input: scores}, labels=labels)
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**position, **self._values}) + "\n")

    def _fit(self, options: dict[str, Any]) -> Calibrator:
        scores, labels = self._evaluated()
        defaults = {"map": self.map or "temperature", "input": self.input}
        calibrator = fit(scores, labels, **{**defaults, **options})
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            calibrator.save(self.folder / "calibrator.calib")
        return calibrator

    def _evaluated(self) -> _Rows:
        if self._rows is None:
            raise InputError("compute", found="no evaluation", accepted="one before save and fit")
        return self._rows


def _processes() -> int:
    is_group = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_group else 1
