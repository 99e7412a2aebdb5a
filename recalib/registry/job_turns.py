"""Whose turn it is in the job queue: a round robin over owners, and over the models of each."""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from recalib.registry import tables
from recalib.registry.job_kinds import MONITOR

_TABLE = tables.jobs
#: Jobs that callers requested, for each that the server requested itself.
_REQUESTED_WEIGHT = 3


@functools.cache  # to build it takes most of the time of a claim
def turns() -> tuple[ColumnElement[Any], ...]:
    """Return the order of ready jobs of equal priority.

    The owner whose last job started first is next, and of its models that whose last job started
    first. Jobs without an owner, such as automatic refits, follow those of callers, unless the last
    three jobs that started were of callers. Jobs that monitor do not count: they have a priority.
    """
    is_automatic = _TABLE.c.owner == ""
    return (
        case((is_automatic, _automatic_rank()), else_=1),
        _last_start("owner"),
        _last_start("model_id"),
        _TABLE.c.sequence,
    )


def _automatic_rank() -> ColumnElement[int]:
    """Return 0 if an automatic job is due, otherwise 2."""
    jobs = _TABLE.alias()
    last = (
        select(jobs.c.owner)
        .where(jobs.c.started_at.is_not(None), jobs.c.kind != MONITOR)
        .order_by(jobs.c.started_at.desc())
        .limit(_REQUESTED_WEIGHT)
        .subquery()
    )
    requested = select(func.count()).where(last.c.owner != "").scalar_subquery()
    return case((requested == _REQUESTED_WEIGHT, 0), else_=2)


def _last_start(column: str) -> ColumnElement[float]:
    """Return when the last job with the same value of a column started; 0 for never."""
    jobs = _TABLE.alias()
    last = select(func.max(jobs.c.started_at)).where(jobs.c[column] == _TABLE.c[column])
    return func.coalesce(last.correlate(_TABLE).scalar_subquery(), 0.0)
