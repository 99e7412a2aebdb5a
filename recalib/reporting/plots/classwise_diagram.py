"""Reliability diagrams of the classes, or of the independent labels, with the largest error."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np

from recalib.errors import InputError
from recalib.metrics import Predictions
from recalib.metrics.classwise_ce import UnbiasedClasswiseError
from recalib.metrics.ece import ExpectedCalibrationError
from recalib.metrics.multilabel import LabelPredictions
from recalib.reporting.plots.bar_panels import accuracy_bars, bar_rows
from recalib.reporting.plots.style import (
    BLUE,
    LEVEL,
    apply_style,
    check_bins,
    check_series,
    inline,
    title,
)
from recalib.reporting.plots.view import FREQUENCY, View, view_of
from recalib.stats.class_bins import ClassBins

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
    count = predictions.classes
    names = _check_options("class", "classes", classes, count, worst, bins)
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
        _panel(names[k], float(errors[k]), predictions.of_class(k), bins, view) for k in shown
    ]
    return _grid(panels, heading, facts)


def label_diagram(
    predictions: LabelPredictions,
    *,
    labels: Sequence[str] | None = None,
    worst: int = 6,
    bins: int = 15,
) -> alt.ConcatChart:
    """Return `classwise_diagram` of independent labels: those with the largest ECE.

    Parameters
    ----------
    labels: the K names, in the order of the columns; None for numbers.
    worst: number of labels, 1 to 12; all labels if there are fewer.
    bins: M, as for ECE; at most 100.

    Raises
    ------
    InputError: no rows, names that are not K, or `worst` or `bins` out of range.
    """
    if not len(predictions):
        raise InputError("predictions", found="no rows", accepted="at least one row")
    count, metric = predictions.count, ExpectedCalibrationError(bins)
    names = _check_options("label", "labels", labels, count, worst, bins)
    parts = [predictions.of_label(k, metric.name) for k in range(count)]
    errors = np.array([metric.measure(part).value for part in parts])
    shown = np.argsort(-errors, kind="stable")[:worst].tolist()
    panels = [_panel(names[k], float(errors[k]), parts[k], bins, FREQUENCY) for k in shown]
    facts = [f"all labels, n = {len(predictions):,}: mean ECE {errors.mean():.2%}"]
    heading = f"Labels: the {len(shown)} of {count:,} with the largest error"
    return _grid(panels, heading, facts)


def _check_options(
    kind: str, field: str, names: Sequence[str] | None, count: int, worst: int, bins: int
) -> list[str]:
    """Return the names of K classes or labels; raise `InputError` for what cannot be displayed."""
    check_bins(bins)
    if not 1 <= worst <= _MOST_PANELS:
        raise InputError("worst", found=str(worst), accepted=f"1 to {_MOST_PANELS}")
    if names is None:
        return [f"{kind} {k}" for k in range(count)]
    if len(names) != count:
        raise InputError(field, found=f"{len(names)} names", accepted=f"{count} names")
    return [str(name) for name in names]


def _panel(
    name: str, error: float, predictions: Predictions, bins: int, view: View
) -> alt.LayerChart | alt.FacetChart:
    """Return bars of the frequency of a class by its probability, with its calibration error."""
    state = view.state(predictions, bins)
    occurred = int(state.correct.sum())
    panel = accuracy_bars(BLUE, view, side=_SIDE, has_strip=False)
    panel.data = inline(bar_rows(state, view))
    panel.title = title(name, [f"error {error:.2%}", f"label of {occurred:,} rows"], _SIDE)
    return panel


def _grid(
    panels: list[alt.LayerChart | alt.FacetChart], heading: str, facts: list[str]
) -> alt.ConcatChart:
    """Return panels in rows of three, with a title and facts above."""
    width = _SIDE * min(len(panels), _COLUMNS)
    diagram: alt.ConcatChart = alt.concat(
        *panels,
        columns=_COLUMNS,
        spacing=24,
        title=title(heading, facts, max(width, 300)),
    ).resolve_scale(color="shared", strokeDash="shared")
    return apply_style(diagram, legend_columns=2)
