"""Jobs: get, list, wait for and cancel them."""

from __future__ import annotations

from collections.abc import Iterator

from recalib.client.drivers import Listing
from recalib.client.errors import JobFailedError, ServerTimeoutError, ServiceError
from recalib.client.operations import Deadline, Flow, Pause, Session
from recalib.client.progress import Progress, Report, progress_reporter
from recalib.client.retry import fetch, path, without_none
from recalib.contract.base import Page
from recalib.contract.jobs import Job

_FIRST_PAUSE, _MAX_PAUSE, _PAUSE_GROWTH = 0.05, 2.0, 1.3


def get_job(session: Session, job: str) -> Flow[Job]:
    """Return the current state of a job.

    Raises
    ------
    ResourceNotFoundError: no job has this id.
    """
    return fetch(session, Job, "GET", path("jobs", job))


def list_jobs(*, model: str | None = None, state: str | None = None) -> Listing[Job]:
    """Iterate over jobs, newest first; arguments filter by model and state."""
    return Listing(Page[Job], path("jobs"), without_none(model=model, job_state=state))


def cancel_job(session: Session, job: Job | str) -> Flow[Job]:
    """Cancel a job: a queued job at once, a running job at its next step.

    A finished job does not change.
    """
    return fetch(session, Job, "DELETE", path("jobs", id_of(job)))


def wait(
    session: Session, job: Job | str, *, timeout: float | None = None, progress: Progress = True
) -> Flow[Job]:
    """Wait until a job has succeeded, and return it.

    A timeout or an interrupt (Ctrl-C) does not cancel the job.

    Parameters
    ----------
    timeout: seconds to wait; None waits without a limit.
    progress: whether to show a progress bar on a terminal, or a function to call instead.

    Raises
    ------
    JobFailedError: the job failed or was cancelled.
    ServerTimeoutError: the job is not finished in time.
    """
    job_id = id_of(job)
    try:
        with progress_reporter(f"job {job_id}", progress) as report:
            finished_job = yield from _poll(session, job_id, Deadline(timeout), report)
    except ServiceError:  # such as an unknown job
        raise
    except BaseException as error:
        error.add_note(f"Job {job_id} still runs; cancel it by client.cancel_job({job_id!r}).")
        raise
    if finished_job.state != "succeeded":
        raise JobFailedError(finished_job)
    return finished_job


def _poll(session: Session, job_id: str, deadline: Deadline, report: Report) -> Flow[Job]:
    for pause in _pauses():
        job = yield from get_job(session, job_id)
        if job.finished:
            report(1.0, job.state)
            return job
        if job.progress is None:
            report(0.0, job.state)
        else:
            report(job.progress.fraction, job.progress.message)
        remaining = deadline.remaining()
        if remaining == 0:
            break
        yield Pause(pause if remaining is None else min(pause, remaining))
    raise ServerTimeoutError(f"job {job_id} is still {job.state}")


def _pauses() -> Iterator[float]:
    """Yield the pauses between polls, in seconds; small fits are fast, so the first are short."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(_MAX_PAUSE, _PAUSE_GROWTH * pause)


def id_of(job: Job | str) -> str:
    """Return the id of a job, or the id itself."""
    return job if isinstance(job, str) else job.id
