"""The few metrics that short tables and texts show."""

from __future__ import annotations

from collections.abc import Collection

_TWO_CLASSES = ("accuracy", "roc_auc", "nll", "brier", "binary_ece")
_CLASSES = ("accuracy", "nll", "brier", "ece", "classwise_ce")


def headline_error(metrics: Collection[str]) -> str:
    """Return the main calibration error of these metrics: that of P(y = 1) for two classes."""
    return "binary_ece" if "binary_ece" in metrics else "ece"


def headline_metrics(metrics: Collection[str]) -> list[str]:
    """Return up to five of these metrics: accuracy, proper scores and main calibration errors."""
    names = _TWO_CLASSES if headline_error(metrics) == "binary_ece" else _CLASSES
    return [name for name in names if name in metrics]


def epoch_metrics(classes: int) -> tuple[str, ...]:
    """Return the metrics of an epoch of training, for K = `classes`."""
    names = ("accuracy", "nll", "brier", "ece")
    return (*names, "binary_ece", "roc_auc") if classes == 2 else names


def short_metrics(classes: int) -> tuple[str, ...]:
    """Return the metrics that commands show by default, for K = `classes`."""
    names = epoch_metrics(classes)
    return names if classes == 2 else (*names, "classwise_ece")
