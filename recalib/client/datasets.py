"""Data sets: upload, get, list and download them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from recalib.client.class_columns import read_labels, read_scores, select_columns
from recalib.client.downloads import download
from recalib.client.drivers import Listing
from recalib.client.errors import InvalidResponseError
from recalib.client.models import get_model
from recalib.client.operations import Flow, Request, Session
from recalib.client.progress import Progress, progress_reporter
from recalib.client.retry import JSON, encode_json, fetch, path, read, send_checked
from recalib.client.uploads import Upload, array_upload, file_upload
from recalib.contract.base import Page
from recalib.contract.datasets import Dataset
from recalib.core.inputs import as_scores, frame_columns
from recalib.errors import InputError

if TYPE_CHECKING:
    from recalib.contract.models import Task

#: A file may be large, and the server computes metrics of all rows before it acknowledges it.
_TRANSFER_TIMEOUT_SECONDS = 3600.0


def upload_dataset(
    session: Session,
    model: str,
    name: str,
    data: str | PathLike[str] | ArrayLike,
    labels: ArrayLike | None = None,
    *,
    label: str | None = None,
    scores: Sequence[str] | None = None,
    input: Literal["logits", "probabilities"] = "logits",
    progress: Progress = True,
    timeout: float = _TRANSFER_TIMEOUT_SECONDS,
) -> Flow[Dataset]:
    """Upload validation data in constant memory. A repeated upload of the same data is accepted.

    >>> client.upload_dataset("pets", "val", "val.csv", label="y")  # doctest: +SKIP

    Parameters
    ----------
    data: the path of a file with labels, in any format that Recalib reads, or logits (N, K).
        Columns of a data frame with the names of the model's classes may have any order, and
        other columns beside them.
    labels: if `data` is an array, (N,), class numbers or the names of the model's classes; or
        (N, K) of a multilabel model.
    label: the column of a data frame, or the column or array of a file, that holds the labels.
    scores: the columns of the classes, in their order, or of class 1 of 2. A file of which `label`
        or `scores` are given is read here, in memory, and uploaded as arrays.
    input: what the values are; it is never guessed.
    progress: whether to show a progress bar on a terminal, or a function to call instead.
    timeout: seconds for the complete upload.

    Raises
    ------
    InputError: the file cannot be read, or the arrays are no logits and labels.
    InvalidRequestError: the server rejects the content of the file.
    ResourceConflictError: a data set of this name has other content.
    """
    upload = yield from _upload(session, model, data, labels, label, scores, input)
    # A server that rejects an upload early closes the connection while the client still sends.
    yield from fetch(session, object, "GET", path("models", model))
    with progress_reporter(f"upload {name}", progress) as report:
        upload.report = report
        query = {"input": input}
        headers = {"Content-Type": upload.media_type}
        place = path("models", model, "datasets", name)
        request = Request("PUT", place, query, headers, upload)
        response = yield from send_checked(session, request, timeout=timeout)
    dataset = read(response, Dataset)
    if dataset.digest != upload.digest:
        raise InvalidResponseError(response, f"is about other bytes than {upload.digest} were sent")
    return dataset


def reference_dataset(
    session: Session,
    model: str,
    name: str,
    uri: str,
    *,
    digest: str | None = None,
    input: Literal["logits", "probabilities"] = "logits",
    timeout: float = _TRANSFER_TIMEOUT_SECONDS,
) -> Flow[Dataset]:
    """Register validation data that stays where it is; jobs of the server read it there.

    >>> client.reference_dataset("resnet", "val", "s3://logits/val/*.parquet")  # doctest: +SKIP

    Parameters
    ----------
    uri: a file, a folder or a glob, such as `s3://bucket/folder/`, within a root of the server
        (`RECALIB_DATASET_ROOTS`).
    digest: the expected SHA-256 of the content of a single file; of several, of the output of
        `sha256sum`, with names relative to the folder of the URI, in order.
    input: what the values are; it is never guessed.
    timeout: seconds for the request; the server reads every row unless the files are larger than an
        upload may be.

    Raises
    ------
    InvalidRequestError: no root contains the URI, a file is not valid, or the contents have another
        digest.
    ResourceConflictError: a data set of this name has other content.
    """
    body = encode_json({"uri": uri} if digest is None else {"uri": uri, "digest": digest})
    place = path("models", model, "datasets", name)
    request = Request("PUT", place, {"input": input}, JSON, body)
    return read((yield from send_checked(session, request, timeout=timeout)), Dataset)


def get_dataset(session: Session, model: str, name: str) -> Flow[Dataset]:
    """Return the description of a data set.

    Raises
    ------
    ResourceNotFoundError: no such model or data set.
    """
    return fetch(session, Dataset, "GET", path("models", model, "datasets", name))


def download_dataset(
    session: Session,
    model: str,
    name: str,
    destination: str | PathLike[str],
    *,
    progress: Progress = True,
    timeout: float = _TRANSFER_TIMEOUT_SECONDS,
) -> Flow[Dataset]:
    """Download a data set to a file, atomically and in constant memory; return its description.

    The file has the bytes of the upload, which the digest proves.

    >>> client.download_dataset("resnet", "val", "val.npz").rows    # doctest: +SKIP
    5000

    Parameters
    ----------
    destination: its suffix is that of the format of the upload, such as `.npz`; data that was
        uploaded as arrays is a `.safetensors` file.
    progress: whether to show a progress bar on a terminal, or a function to call instead.
    timeout: seconds for the complete download.

    Raises
    ------
    ResourceNotFoundError: no such model or data set.
    ResourceConflictError: the data set is by reference; the message names its URI.
    InputError: the suffix is that of another format, or the file cannot be written.
    InvalidResponseError: the server sends other bytes than were uploaded.
    """
    dataset = yield from get_dataset(session, model, name)
    target = Path(destination)
    _check_suffix(target, dataset.media_type)
    place = path("models", model, "datasets", name, "content")
    yield from download(
        session, place, target, size=dataset.size_bytes, digest=dataset.digest,
        title=f"download {name}", progress=progress, timeout=timeout,
    )  # fmt: skip
    return dataset


def list_datasets(model: str) -> Listing[Dataset]:
    """Iterate over a model's data sets, by name."""
    return Listing(Page[Dataset], path("models", model, "datasets"))


def _upload(
    session: Session,
    model: str,
    data: str | PathLike[str] | ArrayLike,
    labels: Any,
    label: str | None,
    scores: Sequence[str] | None,
    input: Literal["logits", "probabilities"],
) -> Flow[Upload]:
    if isinstance(data, str | PathLike):
        if labels is not None:
            found = "labels and a file"
            raise InputError("labels", found=found, accepted="a file that holds both")
        if label is None and scores is None:
            return file_upload(Path(data))
        return (yield from _selected_upload(session, model, Path(data), label, scores, input))
    columns = frame_columns(data)
    for field, name in (("label", label), *(("scores", name) for name in scores or ())):
        if name is not None and name not in (columns or ()):
            accepted = f"one of {', '.join(columns)}" if columns else "a data frame with names"
            raise InputError(field, found=repr(name), accepted=accepted)
    if label is not None:
        if labels is not None:
            raise InputError("label", found="label and labels", accepted="one of the two")
        labels = data[label]  # type: ignore[index]
        data = select_columns(data, [name for name in columns or () if name != label])
    if labels is None:
        accepted = "labels for each row, or label= with the name of their column in a data frame"
        raise InputError("labels", found="none", accepted=accepted)
    if scores is not None:
        rows, columns = as_scores(select_columns(data, scores), input), tuple(scores)
    else:
        rows, columns = (yield from read_scores(session, model, data, input)), frame_columns(data)
    classes = np.shape(rows)[-1] if np.ndim(rows) == 2 else 2
    known = yield from read_labels(session, model, labels, classes, columns)
    return array_upload(rows, known, input)


def _selected_upload(
    session: Session,
    model: str,
    path: Path,
    label: str | None,
    scores: Sequence[str] | None,
    input: Literal["logits", "probabilities"],
) -> Flow[Upload]:
    """Return the upload of the named columns or arrays of a file."""
    from recalib.files import DataSelection, read

    described = yield from get_model(session, model)
    selection = replace(
        DataSelection.of_classes(described.labels),
        label=label,
        scores=None if scores is None else tuple(scores),
    )
    rows = read(path, input=input, task=cast("Task", described.task), selection=selection)
    return array_upload(rows.logits, rows.labels, input)


def _check_suffix(target: Path, media_type: str) -> None:
    """Raise `InputError` if a file of that name would be read as another format."""
    from recalib.files import MEDIA_TYPES, SUFFIXES

    format = MEDIA_TYPES.get(media_type)
    suffixes = [suffix for suffix, name in SUFFIXES.items() if name == format]
    # A newer server may have a format that this version does not read.
    if suffixes and target.suffix.lower() not in suffixes:
        accepted = f"a name that ends in {' or '.join(suffixes)}"
        raise InputError("destination", found=str(target), accepted=accepted)
