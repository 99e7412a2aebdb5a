"""Work that is done elsewhere: looking at it, waiting for it, ending it."""

from __future__ import annotations

from collections.abc import Iterator

from recalib.client.drivers import Listing
from recalib.client.errors import JobFailedError, ServiceError, TimedOutError
from recalib.client.operations import Deadline, Pause, Plan, Session
from recalib.client.progress import Progress, Report, reporting
from recalib.client.results import Job, Page
from recalib.client.retry import fetch, new_key, path

__all__ = ["cancel_job", "get_job", "list_jobs", "wait"]

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.05, 2.0, 1.3


def get_job(session: Session, job: str) -> Plan[Job]:
    """Return a job as it is now.

    Raises
    ------
    MissingError: there is none of that id.
    """
    return fetch(session, Job, "GET", path("jobs", job))


def list_jobs(*, model: str | None = None, state: str | None = None) -> Listing[Job]:
    """Iterate over jobs, newest first: all, or those of a model, or in a state."""
    query = {"model": model, "job_state": state}
    given = {name: value for name, value in query.items() if value is not None}
    return Listing(Page[Job], path("jobs"), given)


def cancel_job(session: Session, job: Job | str) -> Plan[Job]:
    """Cancel a job: at once while it is queued, at its next step while it runs.

    A job that is done stays as it is.
    """
    return fetch(session, Job, "DELETE", path("jobs", _id(job)), headers=new_key())


def wait(
    session: Session, job: Job | str, *, timeout: float | None = None, progress: Progress = True
) -> Plan[Job]:
    """Return a job once it has succeeded.

    Whatever ends the waiting before the job, Ctrl-C too, leaves the job alone.

    Parameters
    ----------
    timeout: seconds to wait; for ever, unless given.
    progress: whether to show a bar where there is a terminal, or who is told how far it is.

    Raises
    ------
    JobFailedError: it failed, or was cancelled.
    TimedOutError: it goes on.
    """
    name = _id(job)
    try:
        with reporting(f"job {name}", progress) as report:
            found = yield from _watched(session, name, Deadline(timeout), report)
    except ServiceError:  # there is no such job, say
        raise
    except BaseException as error:
        error.add_note(f"Job {name} goes on; cancel it by client.cancel_job({name!r}).")
        raise
    if found.state != "succeeded":
        raise JobFailedError(found)
    return found


def _watched(session: Session, name: str, deadline: Deadline, report: Report) -> Plan[Job]:
    for pause in _pauses():
        found = yield from get_job(session, name)
        if found.finished:
            report(1.0, found.state)
            return found
        if found.progress is None:
            report(0.0, found.state)
        else:
            report(found.progress.fraction, found.progress.message)
        left = deadline.left()
        if left == 0:
            break
        yield Pause(pause if left is None else min(pause, left))
    raise TimedOutError(f"job {name} is still {found.state}")


def _pauses() -> Iterator[float]:
    """Yield seconds between looks: few at first, for small fits take no longer."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(_LONGEST_PAUSE, _GROWTH * pause)


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id
