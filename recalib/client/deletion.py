"""Deletion of models, data sets, versions, aliases, training runs, evaluations and batches.

What is deleted is hidden at once: a read or a second deletion raises `ResourceNotFoundError`. Its
content is erased after the server's retention period.
"""

from __future__ import annotations

from recalib.client.jobs import id_of
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path
from recalib.contract.jobs import Job
from recalib.contract.models import Deletion


def delete_model(session: Session, name: str, *, force: bool = False) -> Flow[Deletion]:
    """Delete a model with everything in it; its name is free again.

    Parameters
    ----------
    force: delete its champion too, and cancel its jobs; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such model.
    ResourceConflictError: it has a champion or unfinished jobs, and `force` is not set.
    """
    return _delete(session, path("models", name), force)


def delete_dataset(
    session: Session, model: str, name: str, *, force: bool = False
) -> Flow[Deletion]:
    """Delete a data set; versions that were fitted on it stay, and its name is free again.

    Parameters
    ----------
    force: cancel the jobs that use it; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such model or data set.
    ResourceConflictError: an unfinished job uses it, and `force` is not set.
    """
    return _delete(session, path("models", model, "datasets", name), force)


def delete_calibrator(
    session: Session, model: str, version: int, *, force: bool = False
) -> Flow[Deletion]:
    """Delete a version; its number is not used again.

    Parameters
    ----------
    force: cancel the jobs that use it; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
    ResourceConflictError: an alias points at it, it is a candidate in comparison, or an unfinished
        job uses it and `force` is not set.
    """
    return _delete(session, path("models", model, "calibrators", str(version)), force)


def delete_alias(
    session: Session, model: str, alias: str, *, force: bool = False
) -> Flow[Deletion]:
    """Delete an alias; its version stays.

    Parameters
    ----------
    force: delete the champion too; the model then has no calibrator.

    Raises
    ------
    ResourceNotFoundError: no such model or alias.
    ResourceConflictError: it is the champion, and `force` is not set.
    """
    return _delete(session, path("models", model, "aliases", alias), force)


def delete_run(session: Session, job: Job | str, *, force: bool = False) -> Flow[Deletion]:
    """Delete a training run with its files; a version that it published stays.

    Parameters
    ----------
    job: the job of the run, or its id.
    force: cancel it first; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such run.
    ResourceConflictError: it has not ended, and `force` is not set.
    """
    return _delete(session, path("training-runs", id_of(job)), force)


def delete_evaluation(
    session: Session, model: str, job: Job | str, *, force: bool = False
) -> Flow[Deletion]:
    """Delete an evaluation with its page.

    Parameters
    ----------
    job: the job of the evaluation, or its id.
    force: cancel it first; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such model or evaluation.
    ResourceConflictError: it has not ended, and `force` is not set.
    """
    return _delete(session, path("models", model, "evaluations", id_of(job)), force)


def delete_batch(
    session: Session, model: str, job: Job | str, *, force: bool = False
) -> Flow[Deletion]:
    """Delete a batch with its file.

    Parameters
    ----------
    job: the job of the batch, or its id.
    force: cancel it first; it requires the scope `admin`.

    Raises
    ------
    ResourceNotFoundError: no such model or batch.
    ResourceConflictError: it has not ended, and `force` is not set.
    """
    return _delete(session, path("models", model, "batches", id_of(job)), force)


def _delete(session: Session, place: str, force: bool) -> Flow[Deletion]:
    query = {"force": "true"} if force else {}
    return fetch(session, Deletion, "DELETE", place, query=query)
