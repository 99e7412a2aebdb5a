"""An alert: what is known since the onset of a drift, and what to do next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recalib.contract.base import Resource, Time, one_of

Direction = Literal["too_high", "too_low", "mixed"]


class AlertPlace(Resource):
    """A part of the traffic with a large share of the error."""

    #: What `name` is.
    kind: Annotated[str, one_of(Literal["bin", "class", "segment"])]
    name: str = Field(description="A range of confidences, a predicted class, or a segment.")
    #: Number of its labels since the onset.
    labels: int
    #: Share of these labels that are right.
    accuracy: float
    #: Their mean confidence.
    confidence: float
    low: float = Field(description="Lower end of an interval for confidence minus accuracy.")
    #: Upper end of it.
    high: float


class VersionComparison(Resource):
    """An earlier version that was the champion, on the labels of the alert with kept logits."""

    #: Number of the version.
    version: int
    #: Number of labels that are compared.
    labels: int
    difference: float = Field(
        description="The champion's mean Brier score minus that of this version on the same rows; "
        "above 0 if this version is better."
    )
    low: float = Field(description="Lower end of its interval.")
    #: Upper end of it.
    high: float


class Alert(Resource):
    """Why a champion is suspect or stale: its labels since the onset of the drift.

    The evidence chooses the onset and the time of an alarm, so these labels are selected. Intervals
    have a nominal level of 99.5%, and in simulations cover at least 95% at the alarm.
    """

    onset: Time = Field(
        description="Prediction time of the first of these labels: the estimated start of the "
        "drift, or the start of the latest window if labels show none."
    )
    labels: int = Field(description="A group of dependent rows counts once.")
    accuracy: float = Field(description="Of two classes: the frequency of class 1.")
    confidence: float = Field(description="Of two classes: the mean P(y = 1).")
    low: float = Field(description="Lower end of an interval for confidence minus accuracy.")
    #: Upper end of it.
    high: float
    direction: Annotated[str, one_of(Direction)] = Field(
        description="`too_high`: the confidence is above the accuracy; `mixed`: the interval has 0."
    )
    places: list[AlertPlace] = Field(description="Those with the largest shares of the error.")
    versions: list[VersionComparison] = Field(
        description="Earlier champions, newest first; empty without kept logits."
    )
    summary: str = Field(description="These numbers as a sentence.")
    command: str = Field(description="The next command for an operator.")
    runbook: str = Field(description="URL or path of what to do about it.")
    dashboard: str = Field(description="URL of a dashboard of the model; empty without a setting.")
