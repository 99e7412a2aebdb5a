"""Options of a monitor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from recalib.core.field_types import Fraction, Interval, check_fields
from recalib.core.monitoring_settings import EvidenceSettings
from recalib.core.options import check_option
from recalib.drift.selection import check_selection_ratio
from recalib.drift.target import ACCEPTED, SETS, Target
from recalib.drift.windows import Weighting

_WEEK = 7 * 86_400.0


@dataclass(frozen=True)
class MonitorOptions(EvidenceSettings):
    """Objective, error rates and window of a monitor.

    `alpha` is over the life of this monitor, all segments and classes together. A window is full at
    `window_labels`, at least `least_labels`.

    Examples
    --------
    >>> from recalib.drift import MonitorOptions
    >>> MonitorOptions(tolerance=0.01, segments=5).alpha
    0.05
    """

    #: Largest age of a window, in seconds.
    oldest_seconds: Annotated[float, Interval(gt=0)] = _WEEK
    #: The threshold of the CUSUM for the state `suspect`. A calibrated stream reaches it after this
    #: number of blocks of labels on average, or later.
    suspicion: Annotated[float, Interval(gt=1)] = 10.0
    #: The weights of a window's bins. `traffic` estimates the error of all predictions even if
    #: label rates depend on the confidence.
    weighting: Weighting = "traffic"
    #: Largest number of segments that are monitored beside all traffic; 0 for none.
    segments: Annotated[int, Interval(ge=0, le=1000)] = 0
    #: The indices of the classes whose probabilities are monitored, see `ClassMonitor`.
    classes: tuple[int, ...] = ()
    #: What the probabilities and outcomes of the cohorts are. The test is the same for all.
    target: Target = "top_label"
    #: The coverage that prediction sets promise, monitored beside all traffic; None without sets.
    set_coverage: Fraction | None = None
    #: How far the coverage of fixed thresholds may be from it, besides `tolerance`: thresholds have
    #: the spread of the rows that they are from.
    set_spread: Annotated[float, Interval(ge=0, lt=0.5)] = 0.0

    #: The share of accepted rows that may be wrong, monitored likewise; None without rejection.
    accepted_risk: Fraction | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        enough = self.window_labels >= self.least_labels
        check_option("window_labels", self.window_labels, enough, "at least least_labels")
        check_selection_ratio(self.selection_ratio, self.weighting)

    def of_promises(self) -> dict[str, MonitorOptions]:
        """Return the options of the streams of prediction sets and of accepted rows, by name.

        A risk has no tolerance: it is a bound, which its threshold keeps with a margin.
        """
        streams = {}
        if self.set_coverage is not None:
            tolerance = min(self.tolerance + self.set_spread, 0.49)
            objective = max(self.objective, tolerance)
            streams[SETS] = replace(
                self, target="set_coverage", tolerance=tolerance, objective=objective
            )
        if self.accepted_risk is not None:
            streams[ACCEPTED] = replace(self, target="accepted", tolerance=0.0)
        return streams
