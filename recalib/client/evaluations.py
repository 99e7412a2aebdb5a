"""Evaluations on a server: measure versions on a data set, and download the page."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from recalib.client.downloads import save
from recalib.client.drivers import Listing
from recalib.client.jobs import id_of
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path, without_none
from recalib.contract.base import Page
from recalib.contract.evaluations import Evaluation
from recalib.contract.jobs import Job


def evaluate(
    session: Session,
    model: str,
    dataset: str,
    versions: Sequence[int | str] = ("identity", "champion"),
    *,
    baseline: int | str | None = None,
    segments: Sequence[str] = (),
) -> Flow[Job]:
    """Start an evaluation of versions on a data set; return its job.

    >>> job = client.wait(client.evaluate("resnet", "test"))        # doctest: +SKIP
    >>> client.get_evaluation("resnet", job).results[1].changes["nll"].verdict  # doctest: +SKIP
    'better'

    Parameters
    ----------
    versions: numbers or aliases, or `identity` for the model without a calibrator.
    baseline: the version that the others are compared with, on the same rows; by default the first.
        It is the first of the results.
    segments: columns of the file, such as a country or a device: each version is measured on the
        rows of each value too. The data set is an npz, csv, jsonl, parquet or arrow file.

    Raises
    ------
    ResourceNotFoundError: no such model, data set or version.
    InvalidRequestError: a version twice, a version that cannot take the rows, or a column of
        segments that the file does not have.
    """
    body: dict[str, Any] = {"dataset": dataset, "versions": list(versions)}
    body |= without_none(baseline=baseline, segments=list(segments) or None)
    return fetch(session, Job, "POST", path("models", model, "evaluations"), json=body)


def get_evaluation(session: Session, model: str, evaluation: Job | str) -> Flow[Evaluation]:
    """Return the state of an evaluation, its results and its pictures.

    Parameters
    ----------
    evaluation: its job, or the id of the job.

    Raises
    ------
    ResourceNotFoundError: no such model or evaluation.
    """
    return fetch(session, Evaluation, "GET", _path(model, evaluation))


def download_report(
    session: Session, model: str, evaluation: Job | str, destination: str | PathLike[str]
) -> Flow[int]:
    """Download the HTML page of an evaluation, atomically; return its size in bytes.

    Raises
    ------
    ResourceNotFoundError: no such evaluation, or it has not succeeded.
    InputError: the destination cannot be written.
    """
    return save(session, f"{_path(model, evaluation)}/report", destination)


def list_evaluations(model: str) -> Listing[Evaluation]:
    """Iterate over a model's evaluations without their pictures, newest first."""
    return Listing(Page[Evaluation], path("models", model, "evaluations"))


def _path(model: str, evaluation: Job | str) -> str:
    return path("models", model, "evaluations", id_of(evaluation))
