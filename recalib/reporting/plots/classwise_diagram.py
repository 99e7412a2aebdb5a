"""Class-wise reliability diagrams of the classes with the largest error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recalib.errors import InputError
from recalib.metrics import BinState, Predictions
from recalib.metrics.classwise import ClasswiseError
from recalib.metrics.classwise_ce import UnbiasedClasswiseError
from recalib.reporting.plots.bar_panels import accuracy_bars, bin_rows
from recalib.reporting.plots.style import (
    BLUE,
    LEVEL,
    check_bins,
    check_series,
    inline,
    styled,
    title,
)

if TYPE_CHECKING:
    import altair as alt

__all__ = ["classwise_diagram"]

_SIDE, _COLUMNS, _MOST_PANELS = 180, 3, 12


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
    class comes first. Bars are the frequency of the class, with Wilson's 95% interval.

    Parameters
    ----------
    classes: the K labels, in the order of the columns; None for numbers.
    worst: number of classes, 1 to 12; all classes if there are fewer.
    bins: M, as for ECE; at most 100.

    Raises
    ------
    InputError: no rows, labels that are not K, or `worst` or `bins` out of range.
    """
    import altair as alt

    check_series({"predictions": predictions}, least=1)
    check_bins(bins)
    if not 1 <= worst <= _MOST_PANELS:
        raise InputError("worst", found=str(worst), accepted=f"1 to {_MOST_PANELS}")
    count = predictions.classes
    if classes is not None and len(classes) != count:
        raise InputError("classes", found=f"{len(classes)} labels", accepted=f"{count} labels")
    state = ClasswiseError(bins).state(count)
    state.add(predictions)
    errors = np.abs(state.occurred - state.confidence).sum(axis=1) / state.rows
    mean = UnbiasedClasswiseError(bins).estimate(state, LEVEL)
    worst_classes = np.argsort(-errors, kind="stable")[:worst]
    panels = [
        _panel(
            f"class {k}" if classes is None else str(classes[k]),
            float(errors[k]),
            _state(predictions, int(k), bins),
        )
        for k in worst_classes
    ]
    subtitle = f"the {len(worst_classes)} of {count:,} with the largest error"
    facts = [
        f"all classes, n = {len(predictions):,}: class-wise CE {mean.value:.2%}, 95% interval "
        f"{mean.low:.2%} to {mean.high:.2%}",
        f"plug-in class-wise ECE {errors.mean():.2%}",
    ]
    width = _SIDE * min(len(worst_classes), _COLUMNS)
    diagram: alt.ConcatChart = alt.concat(
        *panels,
        columns=_COLUMNS,
        spacing=24,
        title=title(f"Classes: {subtitle}", facts, max(width, 300)),
    ).resolve_scale(color="shared", strokeDash="shared")
    return styled(diagram, legend_columns=2)


def _state(predictions: Predictions, k: int, bins: int) -> BinState:
    state = BinState(bins)
    state.add_confidences(predictions.probabilities[:, k], predictions.labels == k)
    return state


def _panel(name: str, error: float, state: BinState) -> alt.LayerChart | alt.FacetChart:
    occurred = int(state.correct.sum())
    panel: alt.LayerChart | alt.FacetChart = accuracy_bars(
        BLUE, what="frequency", side=_SIDE, over="probability", labels=[0, 0.5, 1]
    ).properties(
        data=inline(bin_rows(state)),
        title=title(name, [f"error {error:.2%}", f"label of {occurred:,} rows"], _SIDE),
    )
    return panel
