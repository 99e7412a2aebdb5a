"""Validation logits with labels: uploading them, and what the server says of them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from recalib.client.drivers import Listing
from recalib.client.errors import MalformedAnswerError
from recalib.client.operations import Plan, Request, Session
from recalib.client.progress import Progress, reporting
from recalib.client.results import Dataset, Page
from recalib.client.retry import fetch, path, read, succeed
from recalib.client.uploads import Upload, of_arrays, of_file
from recalib.errors import InputError

__all__ = ["get_dataset", "list_datasets", "upload_dataset"]

#: Seconds for an upload: a server measures every row before it answers.
_AN_HOUR = 3600.0


def upload_dataset(
    session: Session,
    model: str,
    name: str,
    data: str | PathLike[str] | ArrayLike,
    labels: ArrayLike | None = None,
    *,
    input: Literal["logits", "probabilities"] = "logits",
    progress: Progress = True,
    timeout: float = _AN_HOUR,
) -> Plan[Dataset]:
    """Upload validation data, in constant memory; the same data again is no error.

    Parameters
    ----------
    data: the path of a file with labels, of any format that Recalib reads; or logits (N, K).
    labels: (N,), with logits.
    input: what the numbers are; never guessed from them.
    progress: whether to show a bar where there is a terminal, or who is told how far it is.
    timeout: seconds for all of it.

    Raises
    ------
    InputError: a file that cannot be read, arrays that are no logits and labels.
    RefusedError: what the server found in the file.
    ContradictionError: other data has that name.
    """
    upload = _upload(data, labels, input)
    # A server that refuses at once hangs up on whoever is still sending.
    yield from fetch(session, object, "GET", path("models", model))
    with reporting(f"upload {name}", progress) as report:
        upload.report = report
        query = {"input": input}
        headers = {"Content-Type": upload.media_type}
        place = path("models", model, "datasets", name)
        request = Request("PUT", place, query, headers, upload)
        answer = yield from succeed(session, request, timeout=timeout)
    dataset = read(answer, Dataset)
    if dataset.digest != upload.digest:
        raise MalformedAnswerError(answer, f"is about other bytes than {upload.digest} were sent")
    return dataset


def get_dataset(session: Session, model: str, name: str) -> Plan[Dataset]:
    """Return a data set's description.

    Raises
    ------
    MissingError: no such model or data set.
    """
    return fetch(session, Dataset, "GET", path("models", model, "datasets", name))


def list_datasets(model: str) -> Listing[Dataset]:
    """Iterate over a model's data sets, by name."""
    return Listing(Page[Dataset], path("models", model, "datasets"))


def _upload(
    data: str | PathLike[str] | ArrayLike,
    labels: ArrayLike | None,
    input: Literal["logits", "probabilities"],
) -> Upload:
    if isinstance(data, str | PathLike):
        if labels is not None:
            found = "labels beside a file"
            raise InputError("labels", found=found, accepted="a file that holds both")
        return of_file(Path(data))
    if labels is None:
        raise InputError("labels", found="none", accepted="one label for each row")
    return of_arrays(data, labels, input)
