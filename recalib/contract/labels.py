"""Outcomes of late labels, and of sums of traffic."""

from __future__ import annotations

from typing import Literal

import msgspec

from recalib.contract.base import Resource

LabelStatus = Literal["accepted", "duplicate", "conflict", "expired", "invalid"]


class LabelOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one label: of the statuses, only `invalid` and `conflict` have a reason.

    Not pydantic: a request has ten thousand, which take 17 ms to decode instead of 1.
    """

    status: str
    reason: str = ""


class TrafficAnswer(Resource):
    """Number of predictions that were counted, and of those that came too late."""

    #: Number of predictions that were counted.
    accepted: int
    #: Number of predictions that came too late.
    expired: int
