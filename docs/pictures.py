"""Draw the picture of each family: what its members do to the same rows.

    python -m docs.pictures

writes `maps.svg`, `objectives.svg`, `metrics.svg` and `losses.svg` into `docs/images`. The rows of
the last three are calibrated, and their logits are divided by temperatures: below 1 the rows are
overconfident, above 1 underconfident.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

import recalib
from recalib.errors import RecalibWarning
from recalib.losses import LOSSES
from recalib.maps import MAPS
from recalib.metrics import METRICS
from recalib.objectives import OBJECTIVES, Objective
from recalib.ops import NumpyOps

Values = NDArray[np.float64]
Rows = tuple[Values, NDArray[np.int64]]

_IMAGES = Path(__file__).parent / "images"
_COLOURS = ["#e69f00", "#0072b2"]
_TEMPERATURES = 2 ** np.linspace(-2, 2, 13)
_SIZE = 88
#: What says nothing: pages have their own descriptions of pictures.
_UNUSED = re.compile(
    r'<path[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>'
    r'| (?:aria-[a-z]+|role|class|pointer-events|font-family|opacity)="[^"]*"'
    r'| stroke-width="1"'
)


def draw_maps() -> alt.Chart:
    """Return P(y = 1) after each map over P(y = 1) before it, beside the frequency of y = 1."""

    def frequency(log_odds: Values) -> Values:
        return np.asarray(expit(1.2 + 0.8 * log_odds - 0.3 * abs(log_odds)))

    def two_classes(log_odds: Values) -> Values:
        return np.column_stack([np.zeros(len(log_odds)), log_odds])

    rng = np.random.default_rng(0)
    log_odds = 3 * rng.normal(size=1000)
    labels = (rng.random(1000) < frequency(log_odds)).astype(int)
    before = np.linspace(0.01, 0.99, 31)
    points = []
    for name in MAPS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecalibWarning)  # some maps are no use for these rows
            calibrator = recalib.fit(two_classes(log_odds), labels, name)
        after = calibrator.predict(two_classes(logit(before)))[:, 1]
        points += _points(name, "frequency of y = 1", before[::3], frequency(logit(before[::3])))
        points += _points(name, "the map", before, after)
    axis = alt.Axis(values=[0, 0.5, 1], grid=False, ticks=False)
    chart = alt.Chart(alt.Data(values=points), width=115, height=115).mark_line()
    chart = chart.encode(
        alt.X("x:Q", axis=axis, title="before"),
        alt.Y("y:Q", axis=axis, title="after"),
        alt.Color("curve:N", title=None, scale=alt.Scale(range=_COLOURS)),
        alt.Facet("name:N", columns=5, sort=list(MAPS), title=None),
    )
    return chart.configure_legend(orient="bottom")


def draw_metrics() -> alt.Chart:
    """Return each metric over the temperature of calibrated rows."""

    def value(name: str) -> Callable[[Values, NDArray[np.int64]], float]:
        def of(z: Values, y: NDArray[np.int64]) -> float:
            # No row above 0.99: `s99_accuracy` is not defined.
            return float(recalib.evaluate(y, logits=z, metrics=[name]).get(name, np.nan))

        return of

    two = {name: value(name) for name in METRICS if not METRICS[name].is_defined_for(6)}
    several = {name: value(name) for name in METRICS if name not in two}
    points = _over_temperature(two, _calibrated(1000, 2))
    return _small_multiples(points + _over_temperature(several, _calibrated(1000, 6)), METRICS)


def draw_objectives() -> alt.Chart:
    """Return each objective over the temperature of calibrated rows."""
    ops = NumpyOps()

    def value(objective: Objective) -> Callable[[Values, NDArray[np.int64]], float]:
        def of(z: Values, y: NDArray[np.int64]) -> float:
            log_p = ops.log_softmax(z)
            return float(objective.loss(ops, log_p, y, np.ones(len(y))))

        return of

    functions = {name: value(objective()) for name, objective in OBJECTIVES.items()}
    return _small_multiples(_over_temperature(functions, _calibrated(1000, 6)), OBJECTIVES)


def draw_losses() -> alt.Chart:
    """Return each loss of one batch over the temperature of its calibrated rows."""
    import torch

    def value(name: str) -> Callable[[Values, NDArray[np.int64]], float]:
        loss = LOSSES[name]()

        def of(z: Values, y: NDArray[np.int64]) -> float:
            given = {"indices": torch.arange(len(y))} if name == "crl" else {}
            return float(loss(torch.tensor(z), torch.tensor(y), **given))

        return of

    functions = {name: value(name) for name in LOSSES}
    return _small_multiples(_over_temperature(functions, _calibrated(500, 6)), LOSSES)


def _calibrated(rows: int, classes: int) -> Rows:
    """Return logits, and labels drawn from their softmax."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(rows, classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def _over_temperature(functions: Mapping[str, Callable[..., float]], rows: Rows) -> list[Any]:
    logits, labels = rows
    points = []
    for name, function in functions.items():
        values = [function(logits / temperature, labels) for temperature in _TEMPERATURES]
        points += _points(name, "value", _TEMPERATURES, values)
    return points


def _points(name: str, curve: str, x: Sequence[float], y: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"name": name, "curve": curve, "x": float(f"{a:.4g}"), "y": float(f"{b:.4g}")}
        for a, b in zip(x, y, strict=True)
        if np.isfinite(b)
    ]


def _small_multiples(points: list[Any], names: Mapping[str, Any]) -> alt.Chart:
    """Return a panel for each name, with a line at the temperature 1."""
    scale = alt.Scale(type="log", domain=[0.25, 4])
    x = alt.X(
        "x:Q",
        scale=scale,
        axis=alt.Axis(values=[0.25, 1, 4], grid=False, ticks=False),
        title=None,
    )
    y = alt.Y("y:Q", axis=alt.Axis(tickCount=3, grid=False, ticks=False), title=None)
    line = alt.Chart().mark_line(color=_COLOURS[1]).encode(x, y.scale(zero=False))
    rule = alt.Chart().mark_rule(color=_COLOURS[0]).encode(x=alt.datum(1, scale=scale))
    panel = alt.layer(rule, line, data=alt.Data(values=points), width=_SIZE, height=_SIZE * 0.7)
    chart = panel.facet(alt.Facet("name:N", sort=list(names), title=None), columns=6)
    return chart.resolve_scale(y="independent")


#: By the name of the file.
PICTURES = {
    "maps": draw_maps,
    "objectives": draw_objectives,
    "metrics": draw_metrics,
    "losses": draw_losses,
}


def main(names: Sequence[str]) -> None:
    """Draw these pictures, or all."""
    for name in names or PICTURES:
        text = io.StringIO()
        PICTURES[name]().save(text, format="svg")
        (_IMAGES / f"{name}.svg").write_text(
            _UNUSED.sub("", text.getvalue()).replace("<svg", '<svg font-family="sans-serif"', 1)
        )


if __name__ == "__main__":
    main(sys.argv[1:])
