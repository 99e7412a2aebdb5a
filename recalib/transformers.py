"""Calibration with Hugging Face transformers.

`CalibrationCallback` and `compute_metrics` are for `transformers.Trainer`; `CalibratedPipeline`
puts a calibrator behind a classification pipeline. Only the callback needs the package.

Legend: N rows, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.inputs import as_array
from recalib.core.options import check_names
from recalib.errors import InputError
from recalib.metrics import METRICS
from recalib.metrics.evaluate import evaluate
from recalib.metrics.headline import epoch_metrics
from recalib.recorder import CalibrationRecorder

if TYPE_CHECKING:
    from recalib.calibrator import Calibrator

    TrainerCallback = object
else:
    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError:
        TrainerCallback = object

__all__ = ["CalibratedPipeline", "CalibrationCallback", "compute_metrics"]


class CalibrationCallback(TrainerCallback):
    """Metrics of calibration at each evaluation of `Trainer`, logits, and a calibrator at the end.

    `Trainer(compute_metrics=callback.compute_metrics, callbacks=[callback])` logs `eval_ece` and
    others wherever `report_to` says; `metric_for_best_model` and early stopping can name them.
    After training, and after `trainer.evaluate()` outside of it, the callback fits a map. With
    `load_best_model_at_end`, `trainer.evaluate()` is the way to a calibrator of the best weights.

    Parameters
    ----------
    folder: gets `metrics.jsonl`, a line for each evaluation; `validation.npz`, the logits of the
        last one, for `recalib fit`; and `calibrator.calib`, with the classes of `id2label`. None by
        default: nothing is written.
    options: `metrics`, `bins`, `level`, `map` and `ignore_index`, as in
        `recalib.recorder.CalibrationRecorder`.

    Raises
    ------
    InputError: an unknown metric or map; in an evaluation, invalid logits or labels.

    Examples
    --------
    >>> callback = CalibrationCallback("runs/reviews")
    >>> trainer = Trainer(
    ...     model, arguments, compute_metrics=callback.compute_metrics, callbacks=[callback]
    ... )  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, **options: Any) -> None:
        # The trainer gathers the rows of all processes.
        self.recorder = CalibrationRecorder(folder, gather=lambda rows: rows, **options)
        #: The calibrator of the last fit.
        self.calibrator: Calibrator | None = None
        self._is_training = self._is_measured = False

    def compute_metrics(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """Return the metrics of an `EvalPrediction` with logits (..., K) and labels (...).

        With `batch_eval_metrics`, they are those of all batches up to `compute_result`.
        """
        self._is_measured = True
        self.recorder.update(*_rows_of(prediction))
        return self.recorder.compute() if compute_result else {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that evaluations are those of a training."""
        self._is_training = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write metrics and logits; outside a training, also fit the map."""
        if not self._is_measured:
            accepted = "compute_metrics=callback.compute_metrics in Trainer"
            raise InputError("compute_metrics", found="another function", accepted=accepted)
        self.recorder.save(epoch=state.epoch or 0, step=state.global_step)
        if not self._is_training:
            self._fit(state.global_step, kwargs["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit the map to the logits of the last evaluation, if they are those of the weights."""
        self._is_training = False
        best = state.best_global_step if args.load_best_model_at_end else None
        self._fit(state.global_step if best is None else best, kwargs["model"])

    def _fit(self, step: int, model: Any) -> None:
        config = getattr(model, "config", None)
        names = None if config is None else tuple(_class_names(config))
        self.calibrator = self.recorder.fit_at_end(step, class_labels=names)


def compute_metrics(
    metrics: Iterable[str] | None = None,
    *,
    bins: int = 15,
    ignored_label: int = -100,
) -> Callable[[Any], dict[str, float]]:
    """Return a function for `transformers.Trainer(compute_metrics=...)`.

    The function takes an `EvalPrediction`, or any pair of logits (..., K) and labels (...). Of a
    tuple of predictions, the first are the logits. The trainer adds the prefix `eval_` to names.

    Parameters
    ----------
    metrics: names in `recalib.metrics.METRICS`; by default accuracy, NLL, Brier score and ECE, of
        two classes also ROC AUC and the ECE of P(y = 1).
    bins: the number of bins of binned metrics.
    ignored_label: rows with this label are left out, such as padding of token classification.

    Raises
    ------
    InputError: an unknown metric; in a call, invalid logits or labels.

    Examples
    --------
    >>> function = compute_metrics(["accuracy"])
    >>> function(([[2.0, 0.0], [0.0, 1.0]], [0, -100]))
    {'accuracy': 1.0}
    """
    names = None if metrics is None else tuple(metrics)
    check_names("metrics", names or (), METRICS)

    def compute(prediction: Any) -> dict[str, float]:
        rows, y = _rows_of(prediction)
        used = y != ignored_label
        if len(rows) == len(y):
            rows, y = rows[used], y[used]
        used_names = epoch_metrics(rows.shape[-1]) if names is None else names
        estimates = evaluate(y, logits=rows, metrics=used_names, bins=bins)
        return {name: estimate.value for name, estimate in estimates.items()}

    return compute


def _class_names(config: Any) -> list[str]:
    return [config.id2label[k] for k in sorted(config.id2label)]


def _rows_of(prediction: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return logits (n, K) and labels (n,) of an `EvalPrediction`, or of a pair."""
    logits, labels = (
        (prediction.predictions, prediction.label_ids)
        if hasattr(prediction, "label_ids")
        else prediction
    )
    scores = as_array(logits[0] if isinstance(logits, tuple) else logits, "logits")
    rows = scores.reshape(-1, scores.shape[-1]) if scores.ndim else scores
    return rows, as_array(labels, "labels").reshape(-1)


class CalibratedPipeline:
    """A classification pipeline of transformers with calibrated scores.

    Parameters
    ----------
    pipeline: a pipeline of the task text-classification, image-classification or
        audio-classification, for one label of K.
    calibrator: fitted on logits (or probabilities) of its model, in the order of `id2label`.

    Raises
    ------
    InputError: another K, or the names of the classes in another order.

    Examples
    --------
    >>> classify = CalibratedPipeline(pipeline("text-classification"), calibrator)  # doctest: +SKIP
    >>> classify("a text")  # doctest: +SKIP
    [{'label': 'POSITIVE', 'score': 0.84}]
    """

    def __init__(self, pipeline: Any, calibrator: Calibrator) -> None:
        names = _class_names(pipeline.model.config)
        card = calibrator.card
        if len(names) != card.classes:
            raise InputError(
                "calibrator", found=f"{card.classes} classes", accepted=f"{len(names)} classes"
            )
        labels = list(card.labels or names)
        if set(labels) == set(names) and labels != names:
            raise InputError(
                "calibrator",
                found=f"classes in the order {', '.join(labels[:5])}",
                accepted=f"the order of the model, {', '.join(names[:5])}",
            )
        self.pipeline = pipeline
        self.calibrator = calibrator
        self.labels = names

    def __call__(self, inputs: Any, *, top_k: int | None = 1, **options: Any) -> Any:
        """Return the likeliest labels with calibrated scores, as the pipeline does with `top_k`.

        Parameters
        ----------
        inputs: what the pipeline takes: one input, a list, or an iterator.
        top_k: the number of labels of each input; None for all.
        options: further options of the pipeline, such as `batch_size`.

        Returns
        -------
        For one input, a list of dictionaries with `label` and `score`, the likeliest first; for a
        list, a list of such lists; for an iterator, an iterator.
        """
        kind: Literal["none", "softmax"]
        kind = "none" if self.calibrator.card.input == "logits" else "softmax"
        answer = self.pipeline(inputs, top_k=len(self.labels), function_to_apply=kind, **options)
        if not isinstance(answer, list):
            return (self._calibrate([one], top_k)[0] for one in answer)
        if answer and isinstance(answer[0], dict):
            return self._calibrate([answer], top_k)[0]
        return self._calibrate(answer, top_k) if answer else []

    def _calibrate(
        self, answers: list[list[dict[str, Any]]], top_k: int | None
    ) -> list[list[dict[str, Any]]]:
        scores = [{entry["label"]: entry["score"] for entry in answer} for answer in answers]
        rows = np.array([[of_row[name] for name in self.labels] for of_row in scores], np.float64)
        probabilities = self.calibrator.predict(rows, input=self.calibrator.card.input)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
        return [
            [{"label": self.labels[k], "score": float(row[k])} for k in top]
            for row, top in zip(probabilities, order, strict=True)
        ]
