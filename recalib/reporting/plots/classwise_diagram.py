"""Class-wise reliability diagrams of the classes with the largest error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recalib.errors import InputError
from recalib.metrics import Predictions
from recalib.metrics.classwise_ce import UnbiasedClasswiseError
from recalib.reporting.plots.frequency_panels import (
    check_worst,
    frequency_grid,
    frequency_panel,
)
from recalib.reporting.plots.style import LEVEL, check_bins, check_series
from recalib.reporting.plots.view import FREQUENCY, view_of
from recalib.stats.class_bins import ClassBins

if TYPE_CHECKING:
    import altair as alt


def classwise_diagram(
    predictions: Predictions,
    *,
    classes: Sequence[str] | None = None,
    worst: int = 6,
    bins: int = 15,
) -> alt.ConcatChart:
    """Return small reliability diagrams of the classes with the largest class-wise error.

    A class's error is Σ_b n_b/N · |frequency_b − confidence_b| over equal-width bins of the
    probability of the class: the term that `classwise_ece` averages. Of equal errors, the earlier
    class comes first. Bars are the frequency of the class, with Wilson's 95% interval. Of two
    classes only class 1 is shown, since the other is its mirror image; axes and bins are those of
    `reliability_diagram`.

    Parameters
    ----------
    classes: the K labels, in the order of the columns; None for numbers.
    worst: number of classes, 1 to 12; all classes if there are fewer.
    bins: M, as for ECE; at most 100.

    Raises
    ------
    InputError: no rows, labels that are not K, or `worst` or `bins` out of range.
    """
    check_series({"predictions": predictions}, least=1)
    check_bins(bins)
    check_worst(worst)
    count = predictions.classes
    if classes is not None and len(classes) != count:
        raise InputError("classes", found=f"{len(classes)} labels", accepted=f"{count} labels")
    names = [f"class {k}" for k in range(count)] if classes is None else [str(c) for c in classes]
    state = ClassBins(count, bins)
    state.add(predictions.probabilities, predictions.labels)
    errors = state.column_errors()
    mean = UnbiasedClasswiseError(bins).estimate(state, LEVEL)
    view, shown = FREQUENCY, np.argsort(-errors, kind="stable")[:worst].tolist()
    heading = f"Classes: the {len(shown)} of {count:,} with the largest error"
    facts = [
        f"all classes, n = {len(predictions):,}: class-wise CE {mean.value:.2%}, 95% interval "
        f"{mean.low:.2%} to {mean.high:.2%}",
        f"plug-in class-wise ECE {errors.mean():.2%}",
    ]
    if count == 2:
        view, series = view_of({"": predictions})
        shown, heading, facts = [1], f"Two classes: {names[1]}", view.facts(series[""], bins)
    panels = [
        frequency_panel(names[k], float(errors[k]), view.state(predictions.of_class(k), bins), view)
        for k in shown
    ]
    return frequency_grid(panels, heading, facts)
