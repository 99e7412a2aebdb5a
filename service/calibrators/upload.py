"""The calibrator that a request uploads."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from recalib.errors import InputError
from recalib.fitting.row_digests import DIGEST_BYTES, decode_digests, encode_digests
from recalib.registry import Model
from service.calibrators.parameter_file import read_parameter_file
from service.calibrators.schemas import SET_FIELDS, CalibratorCreate
from service.reader_pool import reader_pool

#: Wall time to check a parameter file, which is at most a few MiB.
_READ_SECONDS = 60.0


@dataclass(frozen=True)
class Upload:
    """An uploaded calibrator that the reader process has checked."""

    #: The checked file; what its card states is a claim.
    parameters: bytes
    #: Of the rows that it was fitted on, see `encode_digests`; None if they were not sent.
    row_digests: bytes | None
    map: str
    #: SHA-256 of the file that was sent.
    digest: str


async def check_upload(model: Model, request: CalibratorCreate) -> Upload:
    """Return the uploaded calibrator of a request, checked by the reader process.

    Raises
    ------
    InputError: the file or the digests are refused, or the request has a map, an objective or
        options too.
    UnavailableError, LimitedError: as `ReaderPool.run`.
    """
    for name in ("map", "objective", "options", "resampled", *SET_FIELDS, "sets_folds", "max_risk"):
        if name in request.model_fields_set:
            raise InputError(name, found="`parameters` too", accepted="one of the two")
    content = request.parameters or b""
    checked = await reader_pool().run(
        read_parameter_file,
        seconds=_READ_SECONDS,
        content=base64.b64encode(content).decode(),
        classes=model.classes,
        labels=None if model.labels is None else list(model.labels),
        task=model.task,
    )
    parameters = base64.b64decode(checked["parameters"])
    digests = _check_row_digests(request.row_digests, checked["rows"])
    return Upload(parameters, digests, checked["map"], hashlib.sha256(content).hexdigest())


def _check_row_digests(content: bytes | None, rows: int) -> bytes | None:
    if content is None:
        return None
    if not content or len(content) % DIGEST_BYTES:
        found = f"{len(content)} bytes"
        accepted = f"{DIGEST_BYTES} bytes for each row that it was fitted on"
        raise InputError("row_digests", found=found, accepted=accepted)
    digests = encode_digests(decode_digests(content))
    if len(digests) > DIGEST_BYTES * rows:
        found = f"{len(digests) // DIGEST_BYTES} rows"
        raise InputError("row_digests", found=found, accepted=f"at most {rows}, as the card states")
    return digests
