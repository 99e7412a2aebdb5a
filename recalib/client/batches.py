"""Batches on a server: calibrate a file of any size by a job, and download the result."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from recalib.client.class_columns import read_scores
from recalib.client.downloads import download
from recalib.client.drivers import Listing
from recalib.client.jobs import id_of
from recalib.client.operations import Flow, Request, Session
from recalib.client.progress import Progress, progress_reporter
from recalib.client.retry import fetch, idempotency_headers, path, read, send_checked, without_none
from recalib.client.uploads import array_upload, file_upload
from recalib.contract.base import Page
from recalib.contract.jobs import Batch, Job
from recalib.contract.models import Model
from recalib.errors import InputError

#: A file may be large, and the server checks all rows of an upload before it acknowledges it.
_TRANSFER_TIMEOUT_SECONDS = 3600.0


def create_batch(
    session: Session,
    model: str,
    data: str | PathLike[str] | ArrayLike | None = None,
    *,
    dataset: str | None = None,
    version: int | str = "champion",
    format: Literal["parquet", "npz"] = "parquet",
    input: Literal["logits", "probabilities"] = "logits",
    sets: bool = False,
    accepted: bool = False,
    progress: Progress = True,
    timeout: float = _TRANSFER_TIMEOUT_SECONDS,
) -> Flow[Job]:
    """Start the calibration of a file or of a data set; return its job.

    >>> job = client.wait(client.create_batch("resnet", "all.parquet"))     # doctest: +SKIP
    >>> client.download_batch("resnet", job, "probabilities.parquet").rows  # doctest: +SKIP
    5000000

    Parameters
    ----------
    data: the path of a file in any format that Recalib reads, or an array (N, K).
        Labels are not needed. It is sent in constant memory. Columns of a data frame with the names
        of the model's classes may have any order.
    dataset: the name of a data set of the model, in place of `data`.
    version: a number or an alias; an alias means the version that it points to now.
    format: of the result.
    input: what `data` holds; it is never guessed.
    sets: whether the result also has `sets`, truth values (N, K), of a version with thresholds.
    accepted: whether the result also has `accepted`, truth values (N,), of a version with a
        threshold of rejection.
    progress: whether to show a progress bar on a terminal, or a function to call instead.
    timeout: seconds for the complete upload.

    Raises
    ------
    InputError: both or neither of `data` and `dataset`, or a file that cannot be read.
    ResourceNotFoundError: no such model, data set or version.
    InvalidRequestError: the server rejects the content of the file, or the version cannot take it.
    """
    place = path("models", model, "batches")
    if (data is None) == (dataset is None):
        found = "neither" if data is None else "both"
        raise InputError("data, dataset", found=found, accepted="exactly one of the two")
    asked = without_none(sets=sets or None, accepted=accepted or None)
    if data is None:
        body = {"dataset": dataset, "version": version, "format": format, **asked}
        return (yield from fetch(session, Job, "POST", place, json=body))
    # A server that rejects an upload early closes the connection while the client still sends.
    owner = yield from fetch(session, Model, "GET", path("models", model))
    if not isinstance(data, str | PathLike):
        rows = yield from read_scores(session, model, data, input)
        upload = array_upload(rows, None, input, owner.task)
    else:
        upload = file_upload(Path(data))
    with progress_reporter("upload", progress) as report:
        upload.report = report
        query = {"version": str(version), "format": format, "input": input}
        query |= dict.fromkeys(asked, "true")
        headers = idempotency_headers() | {"Content-Type": upload.media_type}
        request = Request("POST", place, query, headers, upload)
        return read((yield from send_checked(session, request, timeout=timeout)), Job)


def get_batch(session: Session, model: str, batch: Job | str) -> Flow[Batch]:
    """Return the state of a batch.

    Parameters
    ----------
    batch: its job, or the id of the job.

    Raises
    ------
    ResourceNotFoundError: no such model or batch.
    """
    return fetch(session, Batch, "GET", _path(model, batch))


def download_batch(
    session: Session,
    model: str,
    batch: Job | str,
    destination: str | PathLike[str],
    *,
    progress: Progress = True,
    timeout: float = _TRANSFER_TIMEOUT_SECONDS,
) -> Flow[Batch]:
    """Download the file of a batch, atomically and in constant memory; return its description.

    The digest proves that the file is complete.

    Parameters
    ----------
    destination: its suffix is that of the format.
    progress: whether to show a progress bar on a terminal, or a function to call instead.
    timeout: seconds for the complete download.

    Raises
    ------
    ResourceNotFoundError: no such batch, or it has not succeeded.
    InputError: the suffix is that of another format, or the file cannot be written.
    InvalidResponseError: the server sends other bytes than it describes.
    """
    description = yield from get_batch(session, model, batch)
    target = Path(destination)
    if target.suffix != f".{description.format}":
        accepted = f"a name that ends in .{description.format}"
        raise InputError("destination", found=str(target), accepted=accepted)
    place = f"{_path(model, batch)}/content"
    yield from download(
        session, place, target, size=description.size_bytes or 0, digest=description.digest,
        title="download", progress=progress, timeout=timeout,
    )  # fmt: skip
    return description


def list_batches(model: str) -> Listing[Batch]:
    """Iterate over a model's batches, newest first."""
    return Listing(Page[Batch], path("models", model, "batches"))


def _path(model: str, batch: Job | str) -> str:
    return path("models", model, "batches", id_of(batch))
