"""What pictures of predictions show: the top label, or P(y = 1) of two classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from recalib.metrics import Predictions
from recalib.metrics.ece import ExpectedCalibrationError
from recalib.reporting.plots.style import FIFTHS, LEVEL, percent
from recalib.stats.sums import Bins, RootBins

_ROOT_TICKS = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1]


@dataclass(frozen=True)
class View:
    """A probability and the rate of its event, each from 0 to 1.

    With `is_root` both axes have a square-root scale, and bins have equal width on it: a share of
    3% is at a sixth of the axis. On a linear scale, nearly all rows of a rare class are in the
    first bin.
    """

    #: The probability, and the rate of its event.
    score: str
    rate: str
    error: str = "ECE"
    #: Rows with and without the event.
    events: tuple[str, str] = ("right", "wrong")
    is_root: bool = False

    def state(self, predictions: Predictions, bins: int) -> Bins:
        """Return the sums in M bins of equal width in the picture."""
        state = RootBins(bins) if self.is_root else Bins(bins)
        state.add(predictions.confidences, predictions.correct)
        return state

    def facts(self, predictions: Predictions, bins: int) -> list[str]:
        """Return the title of a series; ECE has M bins of equal width."""
        ece = ExpectedCalibrationError(bins).measure(predictions, LEVEL)
        rate, score = predictions.correct.mean(), predictions.confidences.mean(dtype=np.float64)
        return [
            f"{self.error} {ece.value:.2%} ({LEVEL:.0%} interval {ece.low:.2%} to {ece.high:.2%})",
            f"{self.rate} {rate:.2%}, mean {self.score} {score:.2%}",
            f"n = {len(predictions):,}",
        ]

    def edges(self, bins: int) -> NDArray[np.float64]:
        """Return the edges of these bins, (M + 1,)."""
        edges = np.arange(bins + 1) / bins
        return edges**2 if self.is_root else edges

    def middle(self, k: int, bins: int) -> float:
        """Return the middle of a bin in the picture."""
        middle = (k + 0.5) / bins
        return float(middle**2) if self.is_root else middle

    def scale(self, domain: Sequence[float] = (0, 1), *, nice: bool = False) -> alt.Scale:
        """Return the scale of an axis."""
        kind: dict[str, Any] = {"type": "sqrt"} if self.is_root else {}
        return alt.Scale(domain=list(domain), nice=nice, **kind)

    def x_axis(self, column: str) -> alt.X:
        """Return the horizontal axis, for a column of scores."""
        return alt.X(f"{column}:Q", scale=self.scale(), axis=percent(self.score, self.ticks))

    @property
    def ticks(self) -> list[float]:
        """Labels of a wide axis."""
        return _ROOT_TICKS if self.is_root else FIFTHS

    @property
    def few_ticks(self) -> list[float]:
        """Labels of a narrow axis."""
        return [0, 0.1, 0.5, 1] if self.is_root else [0, 0.5, 1]


TOP_LABEL = View("confidence", "accuracy")
#: Of one class or label among several.
FREQUENCY = View("probability", "frequency")


def binary_view(*, is_root: bool) -> View:
    """Return the view of P(y = 1) of two classes."""
    events = ("class 1", "class 0")
    return View("P(y = 1)", "frequency of class 1", "binary ECE", events, is_root)


def view_of(series: Mapping[str, Predictions]) -> tuple[View, dict[str, Predictions]]:
    """Return the view of predictions of the same rows, and these with the score as confidence."""
    first = next(iter(series.values()))
    if first.classes != 2:
        return TOP_LABEL, dict(series)
    view = binary_view(is_root=first.has_rare_class)
    return view, {name: predictions.of_class(1) for name, predictions in series.items()}
