"""Metrics of calibration for torchmetrics: they stream, and merge over processes.

Each default metric of `recalib.metrics` is a `torchmetrics.Metric` with sums over rows as state.
`recalib[torchmetrics]` installs what it needs.

Legend: N rows, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from recalib.core.arrays import (
    RESEMBLANCE_HINT,
    check_labels,
    check_logits,
    check_probabilities,
    probability_resemblance,
)
from recalib.core.inputs import as_array, score_matrix
from recalib.core.options import check_names
from recalib.core.packages import optional_packages
from recalib.errors import InputError, RecalibWarning
from recalib.metrics import METRICS, Predictions, State, StreamingMetric
from recalib.metrics.base import UndefinedMetricError

with optional_packages("recalib.torchmetrics", "recalib[torchmetrics]"):
    import torch
    import torchmetrics

__all__ = ["CalibrationMetric", "calibration_metrics"]

_Input = Literal["logits", "probabilities"]

_STREAMING: dict[str, type[StreamingMetric[Any]]] = {
    name: metric
    for name, metric in METRICS.items()
    if issubclass(metric, StreamingMetric) and not metric.on_request
}


class CalibrationMetric(torchmetrics.Metric):
    """A metric of `recalib.evaluate` as a `torchmetrics.Metric`.

    Its value is that of `recalib.metrics.evaluate.StreamingEvaluation` on all rows of all
    processes. Without rows that count it is NaN. Sums are float64 and are computed on the CPU. The
    result is not differentiable: for training, see `recalib.losses`.

    Parameters
    ----------
    name: of a streaming metric, see docs/metrics.md.
    classes: K.
    bins: the number of bins of binned metrics.
    input: what `update` gets; by default logits, with a `RecalibWarning` if they look like
        probabilities.
    options: of `torchmetrics.Metric`, such as `dist_sync_on_step`.

    Raises
    ------
    InputError: an unknown metric, or one that does not stream or is not defined for K classes.

    Examples
    --------
    >>> import torch
    >>> from recalib.torchmetrics import CalibrationMetric
    >>> metric = CalibrationMetric("ece", classes=3)
    >>> metric.update(torch.tensor(logits), torch.tensor(labels))
    >>> round(float(metric.compute()), 2)
    0.18
    """

    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        name: str = "ece",
        *,
        classes: int,
        bins: int = 15,
        input: _Input | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_names("metrics", [name], METRICS)
        if name not in (names := _names(classes)):
            found = f"{name} of {classes} classes"
            raise InputError("metrics", found=found, accepted=f"one of {', '.join(names)}")
        if input not in ("logits", "probabilities", None):
            raise InputError("input", found=repr(input), accepted="logits or probabilities")
        self.classes = classes
        self.input = input or "logits"
        self._is_declared = input is not None
        self._metric = _STREAMING[name](bins)
        # Metrics with equal state names may share a state in a `MetricCollection`.
        self._key = f"sums_of_{self._metric.state_kind}"
        empty = _sums(self._metric.state(classes))
        self.add_state(self._key, torch.zeros_like(empty), dist_reduce_fx="sum")

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Add a batch.

        Parameters
        ----------
        preds: (N, K), or (N,) for class 1 of 2, on any device, of any floating-point dtype.
        target: (N,), integers in [0, K).

        Raises
        ------
        InputError: invalid values; the batch is not added.
        """
        scores = score_matrix(preds, self.input, "preds")
        labels = as_array(target, "target")
        if self.input == "logits":
            z = check_logits(scores, classes=self.classes, field="preds")
            if not self._is_declared and (resemblance := probability_resemblance(z)):
                message = f"preds: {resemblance}; {RESEMBLANCE_HINT}"
                warnings.warn(message, RecalibWarning, stacklevel=2)
            predictions = Predictions.from_logits(z, check_labels(labels, logits=z, field="target"))
        else:
            p = check_probabilities(scores, classes=self.classes, field="preds")
            y = check_labels(labels, logits=p, field="target")
            predictions = Predictions.from_probabilities(p, y)
        state = self._metric.state(self.classes)
        self._metric.add(state, predictions)
        total: torch.Tensor = getattr(self, self._key)
        setattr(self, self._key, total + _sums(state).to(total.device))

    def compute(self) -> torch.Tensor:
        """Return the metric of all rows, a float64 scalar."""
        total: torch.Tensor = getattr(self, self._key)
        numbers = total.detach().cpu().numpy()
        if not numbers.any():
            return torch.tensor(torch.nan, dtype=torch.float64, device=total.device)
        state, start = self._metric.state(self.classes), 0
        for name in state.sums:
            empty = np.asarray(getattr(state, name))
            part = numbers[start : start + empty.size].astype(empty.dtype).reshape(empty.shape)
            setattr(state, name, part if part.ndim else part.item())
            start += empty.size
        value = torch.nan
        with suppress(UndefinedMetricError):
            value = self._metric.estimate(state).value
        return torch.tensor(value, dtype=torch.float64, device=total.device)


def calibration_metrics(
    classes: int,
    metrics: Iterable[str] | None = None,
    *,
    bins: int = 15,
    input: _Input | None = None,
    **options: Any,
) -> torchmetrics.MetricCollection:
    """Return several metrics by name, which share their states where they can.

    Parameters
    ----------
    classes, bins, input: as in `CalibrationMetric`.
    metrics: names; by default all that stream and are defined for K classes.
    options: of `torchmetrics.MetricCollection`, such as `prefix`.

    Raises
    ------
    InputError: as `CalibrationMetric`.

    Examples
    --------
    >>> import torch
    >>> from recalib.torchmetrics import calibration_metrics
    >>> metrics = calibration_metrics(3, ["accuracy", "nll", "ece"])
    >>> sorted(metrics(torch.tensor(logits), torch.tensor(labels)))
    ['accuracy', 'ece', 'nll']
    """
    names = _names(classes) if metrics is None else metrics
    of_names: dict[str, torchmetrics.Metric | torchmetrics.MetricCollection] = {
        name: CalibrationMetric(name, classes=classes, bins=bins, input=input) for name in names
    }
    return torchmetrics.MetricCollection(of_names, **options)


def _names(classes: int) -> list[str]:
    """Return the streaming metrics that are defined for K classes."""
    return [name for name, metric in _STREAMING.items() if metric.is_defined_for(classes)]


def _sums(state: State) -> torch.Tensor:
    """Return the sums of a state as one vector; counts are exact up to 2⁵³."""
    parts = [np.ravel(np.asarray(getattr(state, name), np.float64)) for name in state.sums]
    return torch.from_numpy(np.concatenate(parts))
