"""The calibration error of a version on its validation data, and what it means for monitoring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.card import Card, MetricValue
from recalib.drift import CalibrationSums, MonitorOptions, summarise_window
from recalib.drift.reference_histogram import reference_histogram


def calibration_error(
    probabilities: NDArray[np.float64],
    outcomes: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
) -> MetricValue | None:
    """Return the CE of what is monitored with its 95% interval; None for fewer than two rows.

    CE = √(Σ w_b g_b²), where g_b is accuracy minus mean confidence of a bin and w_b its share of
    the rows, estimated without the bias of sampling, as monitoring does: see `summarise_window`.
    Of two classes, g_b is the frequency of class 1 minus the mean P(y = 1). The bins are at the
    quantiles of the probabilities.

    Parameters
    ----------
    probabilities, outcomes: (N,), see `recalib.drift.target.pairs_of_rows`.
    weights: (N,), whose sum is the effective number of rows; None if all are 1.
    """
    sums = CalibrationSums.empty(reference_histogram(probabilities).edges)
    sums.add_labels(probabilities, outcomes, weights=weights)
    return error_of_sums(sums)


def error_of_sums(sums: CalibrationSums) -> MetricValue | None:
    """Return the same error of labelled rows that are only summed."""
    window = summarise_window(sums)
    if window.ce is None:
        return None
    return MetricValue(window.ce, window.ce_low, window.ce_high)


def validation_error(card: Card) -> MetricValue | None:
    """Return the calibration error that a card states; None for cards older than this field.

    It is the cross-validated one if there is one, otherwise that of the fitted rows, which is
    optimistic.
    """
    selection = card.selection
    cross_validated = None if selection is None else selection.calibration_error
    return card.calibration_error if cross_validated is None else cross_validated


def exceeds_tolerance(card: Card, tolerance: float) -> bool:
    """Return whether the whole 95% interval of a card's calibration error exceeds the tolerance.

    A small sample alone does not exceed it.
    """
    error = validation_error(card)
    return error is not None and error.low is not None and error.low > tolerance


def validation_warnings(
    card: Card | None,
    name: str,
    *,
    tolerance: float = MonitorOptions.tolerance,
    objective: float = MonitorOptions.objective,
) -> list[str]:
    """Return why a version cannot stay fresh under these settings of monitoring, and what to do.

    Parameters
    ----------
    card: of the version that serves or will serve; None for the settings alone.
    name: of the version, for the text.
    tolerance, objective: fractions, see `MonitorOptions`.
    """
    warnings = []
    if tolerance > objective:
        warnings.append(
            f"the tolerance of {tolerance:.3g} is larger than the objective of {objective:.3g}: a "
            "calibrator with an error between them is never fresh and never becomes stale, so it "
            f"is not refitted; set a tolerance of at most {objective:.3g}"
        )
    error = None if card is None else validation_error(card)
    if card is None or error is None or not exceeds_tolerance(card, tolerance):
        return warnings
    contradiction = ""
    advice = "fit another map, or `auto`" if card.choice is None else "fit another map"
    if error.value <= objective:
        contradiction = f", although it meets the objective of {objective:.3g}"
        advice += f", or set a tolerance above {error.value:.3f}"
    warnings.append(
        f"the calibration error of {name} ({card.map}) on its own validation data is "
        f"{error.value:.3f} (95% interval {error.low:.3f} to {error.high:.3f}), more than the "
        f"tolerance of {tolerance:.3g}: monitoring calls it stale as soon as there are enough "
        f"labels{contradiction}; {advice}"
    )
    return warnings
