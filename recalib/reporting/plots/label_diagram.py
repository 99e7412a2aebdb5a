"""Reliability diagrams of the independent labels with the largest error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recalib.errors import InputError
from recalib.metrics.multilabel import LabelPredictions
from recalib.reporting.plots.frequency_panels import (
    check_worst,
    frequency_grid,
    frequency_panel,
)
from recalib.reporting.plots.style import check_bins
from recalib.stats.sums import Bins

if TYPE_CHECKING:
    import altair as alt


def label_diagram(
    predictions: LabelPredictions,
    *,
    labels: Sequence[str] | None = None,
    worst: int = 6,
    bins: int = 15,
) -> alt.ConcatChart:
    """Return small reliability diagrams of the labels with the largest ECE.

    Bars are the frequency of a label by its probability, with Wilson's 95% interval. Of equal
    errors, the earlier label comes first.

    Parameters
    ----------
    labels: the K names, in the order of the columns; None for numbers.
    worst: number of labels, 1 to 12; all labels if there are fewer.
    bins: M, as for ECE; at most 100.

    Raises
    ------
    InputError: no rows, names that are not K, or `worst` or `bins` out of range.
    """
    check_bins(bins)
    check_worst(worst)
    count = predictions.count
    if not len(predictions):
        raise InputError("predictions", found="no rows", accepted="at least one row")
    if labels is not None and len(labels) != count:
        raise InputError("labels", found=f"{len(labels)} names", accepted=f"{count} names")
    states = [_state(predictions, k, bins) for k in range(count)]
    errors = np.array([np.abs(state.correct - state.confidence).sum() for state in states])
    errors /= len(predictions)
    largest = np.argsort(-errors, kind="stable")[:worst]
    panels = [
        frequency_panel(
            f"label {k}" if labels is None else str(labels[k]), float(errors[k]), states[k]
        )
        for k in largest
    ]
    facts = [f"all labels, n = {len(predictions):,}: mean ECE {errors.mean():.2%}"]
    heading = f"Labels: the {len(largest)} of {count:,} with the largest error"
    return frequency_grid(panels, heading, facts)


def _state(predictions: LabelPredictions, k: int, bins: int) -> Bins:
    state = Bins(bins)
    state.add(predictions.probabilities[:, k], predictions.labels[:, k])
    return state
