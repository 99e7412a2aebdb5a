"""Calibration with Hugging Face transformers, which this module does not import.

`compute_metrics` is for `transformers.Trainer`; `CalibratedPipeline` puts a calibrator behind a
classification pipeline.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from recalib.core.options import unknown_name
from recalib.errors import InputError
from recalib.metrics import METRICS
from recalib.metrics.evaluate import evaluate
from recalib.metrics.headline import epoch_metrics

if TYPE_CHECKING:
    from recalib.calibrator import Calibrator

__all__ = ["CalibratedPipeline", "compute_metrics"]


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
    for name in names or ():
        if name not in METRICS:
            raise unknown_name("metrics", name, METRICS)

    def compute(prediction: Any) -> dict[str, float]:
        predictions, labels = (
            (prediction.predictions, prediction.label_ids)
            if hasattr(prediction, "label_ids")
            else prediction
        )
        logits = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions)
        rows = logits.reshape(-1, logits.shape[-1]) if logits.ndim else logits
        y = np.asarray(labels).reshape(-1)
        used = y != ignored_label
        if len(rows) == len(y):
            rows, y = rows[used], y[used]
        used_names = epoch_metrics(rows.shape[-1]) if names is None else names
        estimates = evaluate(y, logits=rows, metrics=used_names, bins=bins)
        return {name: estimate.value for name, estimate in estimates.items()}

    return compute


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
        names = [pipeline.model.config.id2label[k] for k in sorted(pipeline.model.config.id2label)]
        card = calibrator.card
        if len(names) != card.classes:
            raise InputError(
                "calibrator", found=f"{card.classes} classes", accepted=f"{len(names)} classes"
            )
        if card.labels is not None and set(card.labels) == set(names):
            self._check_order(list(card.labels), names)
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
            return self._each(answer, top_k)
        if answer and isinstance(answer[0], dict):
            return self._calibrate([answer], top_k)[0]
        return self._calibrate(answer, top_k) if answer else []

    def _each(self, answers: Iterable[Any], top_k: int | None) -> Iterator[Any]:
        for answer in answers:
            yield self._calibrate([answer], top_k)[0]

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

    @staticmethod
    def _check_order(names: list[str], accepted: list[str]) -> None:
        if names != accepted:
            raise InputError(
                "calibrator",
                found=f"classes in the order {', '.join(names[:5])}",
                accepted=f"the order of the model, {', '.join(accepted[:5])}",
            )
