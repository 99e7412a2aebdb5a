"""Labels of messages and rows, and how they are sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from recalib.client import (
    Client,
    LabelOutcome,
    OverloadedError,
    RateLimitError,
    UnreachableError,
)
from recalib.errors import InputError

log = logging.getLogger(__name__)

#: Outcomes of labels that the server has.
STORED = ("accepted", "duplicate")
_FORM = '{"prediction_id": "...", "label": ...}, or a list of these'
#: Pauses while the server cannot take labels, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Label(msgspec.Struct, frozen=True):
    """The true class of a prediction; other fields of a message are ignored."""

    prediction_id: str
    #: Index of the class, or its label if the model has labels. Of a multilabel model: a list of
    #: the labels that the row has.
    label: int | str | list[int | str]
    #: The group of the row, whose other rows it may depend on; empty for none. A number is text.
    group: str | int | None = None


_decoder = msgspec.json.Decoder(list[Label] | Label)


def decode_labels(content: bytes | None) -> list[Label]:
    """Return the labels of a message; `InputError` if it has another form."""
    try:
        decoded = _decoder.decode(content or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError("message", found=f"{error}", accepted=_FORM) from None
    return decoded if isinstance(decoded, list) else [decoded]


def send(
    client: Client, model: str, labels: Sequence[Label], is_stopped: Callable[[], bool]
) -> list[LabelOutcome]:
    """Send labels until the server has stored them; return the outcome of each.

    Raises
    ------
    UnreachableError, OverloadedError, RateLimitError: the server does not take them, and the ingest
        is stopped.
    ServiceError: the server refuses the request, as for a model that does not exist.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            ids = [label.prediction_id for label in labels]
            groups = ["" if label.group is None else str(label.group) for label in labels]
            classes = [label.label for label in labels]
            return client.add_labels(model, ids, classes, groups=groups).items
        except (UnreachableError, OverloadedError, RateLimitError) as error:
            if is_stopped():
                raise
            text = "The server takes no labels; the next attempt is in %g s: %s"
            log.warning(text, pause, error, extra={"action": "ingest_waits"})
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
