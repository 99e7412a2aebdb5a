"""An alert: what is known since the onset of a drift, and what to do next."""

from __future__ import annotations

from typing import Annotated, Literal

from recalib.contract.base import Resource, Time, one_of

Direction = Literal["too_high", "too_low", "mixed"]


class AlertPlace(Resource):
    """A part of the traffic with a large share of the error."""

    #: What `name` is.
    kind: Annotated[str, one_of(Literal["bin", "class", "segment"])]
    #: A range of confidences, a predicted class, or a segment.
    name: str
    #: Number of its labels since the onset.
    labels: int
    #: Share of these labels that are right.
    accuracy: float
    #: Their mean confidence.
    confidence: float
    #: Lower end of an interval for confidence minus accuracy.
    low: float
    #: Upper end of it.
    high: float


class VersionComparison(Resource):
    """An earlier version that was the champion, on the labels of the alert with kept logits."""

    #: Number of the version.
    version: int
    #: Number of labels that are compared.
    labels: int
    #: The champion's mean Brier score minus that of this version on the same rows; above 0 if this
    #: version is better.
    difference: float
    #: Lower end of its interval.
    low: float
    #: Upper end of it.
    high: float


class Alert(Resource):
    """Why a champion is suspect or stale: its labels since the onset of the drift.

    The evidence chooses the onset and the time of an alarm, so these labels are selected. Intervals
    have a nominal level of 99.5%, and in simulations cover at least 95% at the alarm.
    """

    #: Prediction time of the first of these labels: the estimated start of the drift, or the start
    #: of the latest window if labels show none.
    onset: Time
    #: A group of dependent rows counts once.
    labels: int
    #: Of two classes: the frequency of class 1.
    accuracy: float
    #: Of two classes: the mean P(y = 1).
    confidence: float
    #: Lower end of an interval for confidence minus accuracy.
    low: float
    #: Upper end of it.
    high: float
    #: `too_high`: the confidence is above the accuracy; `mixed`: the interval has 0.
    direction: Annotated[str, one_of(Direction)]
    #: Those with the largest shares of the error.
    places: list[AlertPlace]
    #: Earlier champions, newest first; empty without kept logits.
    versions: list[VersionComparison]
    #: These numbers as a sentence.
    summary: str
    #: The next command for an operator.
    command: str
    #: URL or path of what to do about it.
    runbook: str
    #: URL of a dashboard of the model; empty without a setting.
    dashboard: str
