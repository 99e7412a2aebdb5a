"""Monitoring of served calibrators, refits and candidates."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from recalib.client.drivers import Listing
from recalib.client.operations import Flow, Request, Session
from recalib.client.progress import Progress, progress_reporter
from recalib.client.retry import fetch, idempotency_headers, path, read, send_checked
from recalib.client.uploads import file_upload
from recalib.contract.base import Page
from recalib.contract.jobs import Job
from recalib.contract.models import Model
from recalib.contract.monitoring import CandidateReport as Candidate
from recalib.contract.monitoring import HistoryEntry as MonitoringEntry
from recalib.contract.monitoring import MonitoringReport as Monitoring
from recalib.core.monitoring_settings import MonitoringSettings

_UPLOAD_TIMEOUT_SECONDS = 3600.0


def get_monitoring(session: Session, model: str) -> Flow[Monitoring]:
    """Return the monitoring of a model's champion: state, evidence, windows and events.

    Raises
    ------
    ResourceNotFoundError: no such model.
    """
    return fetch(session, Monitoring, "GET", path("models", model, "monitoring"))


def list_monitoring_history(model: str, *, version: int | None = None) -> Listing[MonitoringEntry]:
    """Iterate over the states after each cohort of predictions, newest first.

    Parameters
    ----------
    version: of this version alone; by default of all versions that were the champion.

    Raises
    ------
    ResourceNotFoundError: no such model.
    """
    query = {} if version is None else {"version": str(version)}
    return Listing(Page[MonitoringEntry], path("models", model, "monitoring", "history"), query)


def refit(session: Session, model: str) -> Flow[Job]:
    """Fit a candidate on sampled logits; return the job, which may already be queued or running.

    The candidate becomes the champion only on evidence: see `get_monitoring`.

    Raises
    ------
    ResourceNotFoundError: no such model.
    ResourceConflictError: the model has no champion.
    """
    return fetch(session, Job, "POST", path("models", model, "monitoring", "refit"))


def replay(
    session: Session,
    model: str,
    log: str | PathLike[str],
    *,
    version: int | str = "champion",
    to_now: bool = False,
    progress: Progress = True,
    timeout: float = _UPLOAD_TIMEOUT_SECONDS,
) -> Flow[Job]:
    """Load a log of past predictions into the monitoring of a version; return the job.

    States, evidence and events then have the times of the log, and are marked as replayed.

    Parameters
    ----------
    log: the path of a Parquet or CSV file with the columns of `recalib replay`.
    version: a number or an alias of a version without monitoring state.
    to_now: whether all times of the log move forward, so that it ends now.
    progress: whether to show a progress bar on a terminal, or a function to call instead.
    timeout: seconds for the complete upload; the server checks all rows.

    Raises
    ------
    InputError: the file cannot be read, or is neither Parquet nor CSV.
    ResourceNotFoundError: no such model or version.
    InvalidRequestError: the log is not valid for the model.
    ResourceConflictError: the version has monitoring state.
    """
    upload = file_upload(Path(log), field="log", formats=("parquet", "csv"))
    # A server that rejects an upload early closes the connection while the client still sends.
    yield from fetch(session, object, "GET", path("models", model))
    with progress_reporter("upload", progress) as report:
        upload.report = report
        query = {"version": str(version), "to_now": str(to_now).lower()}
        headers = idempotency_headers() | {"Content-Type": upload.media_type}
        place = path("models", model, "monitoring", "replays")
        request = Request("POST", place, query, headers, upload)
        return read((yield from send_checked(session, request, timeout=timeout)), Job)


def drop_candidate(
    session: Session, model: str, version: int, *, reason: str = ""
) -> Flow[Candidate]:
    """Drop a candidate that is being compared, or that has proven better; the champion stays.

    Parameters
    ----------
    reason: for the audit trail.

    Raises
    ------
    ResourceNotFoundError: no such model, or the version was never a candidate.
    ResourceConflictError: the candidate has been promoted.
    """
    where = path("models", model, "monitoring", "candidates", str(version))
    query = {"reason": reason} if reason else {}
    return fetch(session, Candidate, "DELETE", where, query=query)


def set_monitoring(
    session: Session, /, model: str, **settings: Annotated[Any, MonitoringSettings]
) -> Flow[Model]:
    """Set the monitoring settings of a model.

    Parameters
    ----------
    settings: the fields of `MonitoringSettings` (`objective`, `tolerance`, `alpha`, `segments`,
        ...); a setting that is left out gets its default.

    Raises
    ------
    ResourceNotFoundError: no such model.
    InvalidRequestError: a setting is invalid.
    ResourceConflictError: existing segments would change their numbers.
    """
    where = path("models", model, "monitoring", "settings")
    return fetch(session, Model, "PUT", where, json=settings)
