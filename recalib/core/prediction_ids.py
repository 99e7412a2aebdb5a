"""Prediction ids: the data of a prediction that a late label needs, signed, in 88 characters.

A server stores nothing for a prediction. Its id contains the data for calibration errors, so that a
label needs no join with a log, and a message authentication code, so that it cannot be forged.
Format, little-endian and in base64url::

    format 1 | segment 1 | key 4 | model 8 | version 4 | microseconds 8 | batch 8
                                                                           equal in a batch
    raw confidence 4 | confidence 4 | class 4 | row 4                      of one row
    BLAKE2b 16                                                             of the 50 before it

66 bytes are 88 characters without padding. An id contains nothing secret.

Format 2 is of rows of a group (`recalib.core.group_numbers`): its number is in place of the batch,
and the rows count from a random number. Formats 3 and 4 are 1 and 2 of answers that were adapted to
label shift: the upper half of the model is the number of the state (`recalib.shift`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hmac import compare_digest
from itertools import count
from math import exp
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats

#: Length of an id in characters.
ID_LENGTH = 88

#: Of a format: 1, plus 1 with a group, plus 2 with a state of the adaptation.
_FORMATS = range(1, 5)
_HEAD = struct.Struct("<BBIQIQQ")
_ROW = struct.Struct("<ffII")
_MAC_BYTES = 16
_SIGNED = _HEAD.size + _ROW.size
#: The personalisation string of BLAKE2b, at most 16 bytes.
_PURPOSE = b"prediction id"
_ALPHABET = re.compile(rf"[A-Za-z0-9_-]{{{ID_LENGTH}}}")
#: Up to this number of values, plain Python is faster: 3 us for a row of 10 instead of 19.
_SMALL_BATCH = 64
#: A difference of logits whose exponential is 10^304: the confidence is 0 in float32.
_MAX_EXPONENT = 700.0
_ALL_BITS, _ALL_ROWS = 2**64 - 1, 2**32 - 1
#: Batch numbers start at a random number; a process does not fork while it serves.
_batches = count(int.from_bytes(os.urandom(8), "little"))
#: How far ahead another server's clock may be.
_SKEW_SECONDS = 300.0


@dataclass(frozen=True)
class SigningKey:
    """A key that signs ids, and its number in ids, from 1."""

    number: int
    #: 32 random bytes.
    secret: bytes = field(repr=False)


class BatchSummary(NamedTuple):
    """The data of a batch for ids; lists with one entry per row."""

    #: The uncalibrated probability of the predicted class, in [0, 1].
    raw_confidences: list[float]
    #: Its calibrated probability, in [0, 1].
    confidences: list[float]
    #: The class with the highest calibrated probability; of a multilabel row, the drawn label.
    predicted: list[int]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The data of one id."""

    model: int
    version: int
    #: Seconds since 1970, by the clock of the server that answered.
    made_at: float
    raw_confidence: float
    confidence: float
    predicted: int
    #: The authentication code of the id, which identifies it.
    digest: bytes
    #: The number of the segment, from 1; 0 for none.
    segment: int = 0
    #: The number of the group; 0 for none.
    group: int = 0
    #: The number of the state that adapted the answer to label shift; 0 for none.
    adaptation: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an id is rejected."""

    status: Literal["expired", "invalid"]
    reason: str


def summarise_predictions(logits: Floats, probabilities: Floats) -> BatchSummary:
    """Return the data of a batch for its ids.

    Both confidences are of the class with the highest calibrated probability (the first of equal
    ones), because both are compared with one event: that this class is the label. A map that
    preserves the order of classes has the same top class before and after.

    Parameters
    ----------
    logits: validated logits, (N, K).
    probabilities: calibrated probabilities, (N, K).
    """
    if logits.size <= _SMALL_BATCH:
        return _summarise_few(logits.tolist(), probabilities.tolist())
    predicted = probabilities.argmax(axis=1)
    rows = np.arange(len(predicted))
    wide = logits.astype(np.float32) if logits.dtype == np.float16 else logits
    # If another class is far ahead, the sum is infinite and the confidence 0.
    with np.errstate(over="ignore"):
        raw = 1 / np.exp(wide - wide[rows, predicted][:, None]).sum(axis=1)
    confidences = probabilities[rows, predicted]
    return BatchSummary(raw.tolist(), confidences.tolist(), predicted.tolist())


def summarise_drawn_labels(
    log_odds: Floats, probabilities: Floats, drawn: NDArray[np.integer[Any]]
) -> BatchSummary:
    """Return the data of a multilabel batch for its ids: each row is a prediction of one label.

    Parameters
    ----------
    log_odds: validated log-odds, (N, K).
    probabilities: calibrated probabilities, (N, K).
    drawn: label of each row, (N,). The draw must not depend on which labels the row has.
    """
    cells = np.arange(len(drawn)), drawn
    raw = scipy.special.expit(log_odds[cells].astype(np.float64))
    return BatchSummary(raw.tolist(), probabilities[cells].tolist(), drawn.tolist())


def _summarise_few(logits: list[list[float]], probabilities: list[list[float]]) -> BatchSummary:
    """Return the same without NumPy, whose calls are slow for a few numbers."""
    raw, confidences, predicted = [], [], []
    for values, row in zip(logits, probabilities, strict=True):
        confidence = max(row)
        best = row.index(confidence)
        value_of_best = values[best]
        overflows = max(values) - value_of_best > _MAX_EXPONENT  # exp would overflow
        raw.append(0.0 if overflows else 1 / sum([exp(value - value_of_best) for value in values]))
        confidences.append(confidence)
        predicted.append(best)
    return BatchSummary(raw, confidences, predicted)


def mint(
    key: SigningKey,
    model: int,
    version: int,
    made_at: float,
    predictions: BatchSummary,
    segment: int = 0,
    group: int = 0,
    adaptation: int = 0,
) -> list[str]:
    """Return one id per row; an id takes about a microsecond.

    Ids are unique: they contain the row number, a batch number that starts at a random 64-bit
    number in each process, and the time.

    Parameters
    ----------
    model: id of the model in the registry; below 2^32 with `adaptation`.
    made_at: seconds since 1970.
    adaptation: number of the state that adapted the answers; 0 for none.
    segment: number of the segment of the batch, at most 255; 0 for none.
    group: number of the group of the batch; 0 for none.
    """
    batch, first = next(_batches) & _ALL_BITS, 0
    if group:
        first = int.from_bytes(os.urandom(4), "little")
    head = _HEAD.pack(
        1 + bool(group) + 2 * bool(adaptation),
        segment,
        key.number,
        model | adaptation << 32,
        version,
        int(made_at * 1e6),
        group or batch,
    )
    # The key and the head are hashed once; each row continues from a copy.
    head_mac = _mac(key)
    head_mac.update(head)
    if len(predictions.predicted) == 1:  # most requests
        row = _ROW.pack(*(column[0] for column in predictions), first)
        head_mac.update(row)
        return [base64.urlsafe_b64encode(head + row + head_mac.digest()).decode()]
    parts = []
    numbers = ((first + row) & _ALL_ROWS for row in range(len(predictions.predicted)))
    for row in map(_ROW.pack, *predictions, numbers):
        mac = head_mac.copy()
        mac.update(row)
        parts.append(head + row + mac.digest())
    # 66 bytes are a multiple of 3, so all ids can be encoded at once.
    text = base64.urlsafe_b64encode(b"".join(parts)).decode()
    return [text[start : start + ID_LENGTH] for start in range(0, len(text), ID_LENGTH)]


def read_ids(
    ids: Sequence[str],
    keys: Mapping[int, SigningKey],
    *,
    model: int,
    now: float,
    lifetime_seconds: float,
) -> list[Prediction | Refusal]:
    """Return the data of each id, or the reason why this id is rejected.

    Parameters
    ----------
    ids: untrusted text.
    keys: the valid keys, by number.
    model: id of the model that the ids must belong to.
    now: seconds since 1970. An id may be up to 300 s younger: the clocks of servers differ.
    """
    macs = {number: _mac(key) for number, key in keys.items()}
    return [_read(text, macs, model, now, lifetime_seconds) for text in ids]


def _read(
    text: str, macs: Mapping[int, Any], model: int, now: float, lifetime_seconds: float
) -> Prediction | Refusal:
    if _ALPHABET.fullmatch(text) is None:
        return Refusal("invalid", f"not {ID_LENGTH} characters of base64url, as every id is")
    content = base64.urlsafe_b64decode(text)
    format, segment, number, of_model, version, microseconds, batch = _HEAD.unpack_from(content)
    if format not in _FORMATS or number not in macs:
        return Refusal("invalid", "not signed by a key of this service, or by one given up since")
    mac = macs[number].copy()
    mac.update(content[:_SIGNED])
    digest = content[_SIGNED:]
    if not compare_digest(mac.digest(), digest):
        return Refusal("invalid", "changed, or not made by this service")
    # The signature is valid: the content can be trusted.
    made_at, adaptation = microseconds / 1e6, 0
    if format > 2:
        adaptation, of_model = divmod(of_model, 2**32)
    if of_model != model:
        return Refusal("invalid", "a prediction of another model")
    if made_at > now + _SKEW_SECONDS:
        ahead = f"{made_at - now:.0f} seconds from now"
        return Refusal("invalid", f"made {ahead}: the clocks of server and database disagree")
    if made_at < now - lifetime_seconds:
        return Refusal(
            "expired", f"older than {lifetime_seconds:.15g} seconds, which labels may take"
        )
    raw_confidence, confidence, predicted, _ = _ROW.unpack_from(content, _HEAD.size)
    group = 0 if format % 2 else batch
    of_row = raw_confidence, confidence, predicted, digest
    return Prediction(of_model, version, made_at, *of_row, segment, group, adaptation)


def _mac(key: SigningKey) -> Any:
    return _keyed_hash(key.secret).copy()


# The key is hashed once, not for every batch.
@lru_cache(maxsize=16)
def _keyed_hash(secret: bytes) -> Any:
    return hashlib.blake2b(key=secret, digest_size=_MAC_BYTES, person=_PURPOSE)
