"""Prediction ids: what a late label must know of a prediction, signed, in 88 characters.

Whoever serves writes nothing down for a prediction. Its id carries what calibration errors are
made of, so that the label needs no join with a log, and a message authentication code by a key of
ours, so that nobody else can make one. It holds, little-endian and in base64url::

    format 1 | segment 1 | key 4 | model 8 | version 4 | microseconds 8 | batch 8
                                                                           the same in a batch
    raw confidence 4 | confidence 4 | class 4 | row 4                      of one row
    BLAKE2b 16                                                             of the 50 before it

66 bytes are 88 characters without padding, for every model. Nothing in an id is secret.
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

from recalib.arrays import Floats

__all__ = [
    "ID_LENGTH",
    "Prediction",
    "Predictions",
    "Refusal",
    "SigningKey",
    "mint",
    "read_ids",
    "summarise_predictions",
]

#: Characters of an id.
ID_LENGTH = 88

_FORMAT = 1
_HEAD = struct.Struct("<BBIQIQQ")
_ROW = struct.Struct("<ffII")
_MAC_BYTES = 16
_SIGNED = _HEAD.size + _ROW.size
#: BLAKE2b's own mark of what its keys are used for, at most 16 bytes.
_PURPOSE = b"prediction id"
_ALPHABET = re.compile(rf"[A-Za-z0-9_-]{{{ID_LENGTH}}}")
#: Numbers in a batch below which plain Python is quicker: 3 us for a row of 10 instead of 19.
_FEW = 64
#: A difference of logits whose exponential is 10^304: a confidence that float32 calls 0.
_FAR = 700.0
_ALL_BITS = 2**64 - 1
#: A process is never copied while it serves, so that each has a beginning of its own.
_batches = count(int.from_bytes(os.urandom(8), "little"))
#: How far ahead another server's clock may be.
_SKEW_SECONDS = 300.0


@dataclass(frozen=True)
class SigningKey:
    """A key that ids are signed with, and the number that they name it by, from 1."""

    number: int
    #: 32 random bytes.
    secret: bytes = field(repr=False)


class Predictions(NamedTuple):
    """What ids say of the rows of a batch, each a list with an entry a row."""

    #: What the classifier itself gave the predicted class, in [0, 1].
    raw_confidences: list[float]
    #: What the calibrator gives it, in [0, 1].
    confidences: list[float]
    #: The class with the highest calibrated probability.
    predicted: list[int]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one id says."""

    model: int
    version: int
    #: Seconds since 1970, by the clock of the server that answered.
    made_at: float
    raw_confidence: float
    confidence: float
    predicted: int
    #: The id's authentication code, by which it can be told from every other.
    digest: bytes
    #: Of the model's segments, from 1; 0 for none.
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an id is of no use."""

    status: Literal["expired", "invalid"]
    reason: str


def summarise_predictions(logits: Floats, probabilities: Floats) -> Predictions:
    """Return what ids say of a batch.

    Both confidences are of one class, the one with the highest calibrated probability (the lowest
    of several), because the event that they are compared with must be one: that this is the label.
    Maps that keep the order of classes have the same class first in both.

    Parameters
    ----------
    logits: the classifier's, checked, (N, K).
    probabilities: the calibrated ones, (N, K).
    """
    if logits.size <= _FEW:
        return _of_few(logits.tolist(), probabilities.tolist())
    predicted = probabilities.argmax(axis=1)
    rows = np.arange(len(predicted))
    wide = logits.astype(np.float32) if logits.dtype == np.float16 else logits
    # Of a class that is far behind another, the sum is infinite and the confidence 0.
    with np.errstate(over="ignore"):
        raw = 1 / np.exp(wide - wide[rows, predicted][:, None]).sum(axis=1)
    confidences = probabilities[rows, predicted]
    return Predictions(raw.tolist(), confidences.tolist(), predicted.tolist())


def _of_few(logits: list[list[float]], probabilities: list[list[float]]) -> Predictions:
    """Return the same without NumPy, whose calls take longer than a few numbers do."""
    raw, confidences, predicted = [], [], []
    for values, row in zip(logits, probabilities, strict=True):
        confidence = max(row)
        best = row.index(confidence)
        own = values[best]
        far = max(values) - own > _FAR  # another class is so far ahead that a power would overflow
        raw.append(0.0 if far else 1 / sum([exp(value - own) for value in values]))
        confidences.append(confidence)
        predicted.append(best)
    return Predictions(raw, confidences, predicted)


def mint(
    key: SigningKey,
    model: int,
    version: int,
    made_at: float,
    predictions: Predictions,
    segment: int = 0,
) -> list[str]:
    """Return an id for each row, about a microsecond each.

    No two are alike: those of a batch count their rows, batches of a process are counted from a
    random number of 64 bits on, and they differ by when they were made.

    Parameters
    ----------
    model: its number in the registry.
    made_at: seconds since 1970.
    segment: the number of the model's segment that the batch is of, at most 255; 0 for none.
    """
    head = _HEAD.pack(
        _FORMAT,
        segment,
        key.number,
        model,
        version,
        int(made_at * 1e6),
        next(_batches) & _ALL_BITS,
    )
    # The key and the head are hashed once; each row goes on from there.
    begun = _mac(key)
    begun.update(head)
    if len(predictions.predicted) == 1:  # most requests
        row = _ROW.pack(*(one[0] for one in predictions), 0)
        begun.update(row)
        return [base64.urlsafe_b64encode(head + row + begun.digest()).decode()]
    parts = []
    for row in map(_ROW.pack, *predictions, range(len(predictions.predicted))):
        mac = begun.copy()
        mac.update(row)
        parts.append(head + row + mac.digest())
    # Each takes a whole number of base64's groups, so that all can be encoded at once.
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
    """Return what each id says, or why it is refused; one that is does not touch the others.

    Parameters
    ----------
    ids: any text at all.
    keys: those that are still good, by number.
    model: the number of the model that the ids must be of.
    now: seconds since 1970. An id may be a little younger, since servers' clocks differ.
    """
    begun = {number: _mac(key) for number, key in keys.items()}
    return [_read(one, begun, model, now, lifetime_seconds) for one in ids]


def _read(
    text: str, begun: Mapping[int, Any], model: int, now: float, lifetime_seconds: float
) -> Prediction | Refusal:
    if _ALPHABET.fullmatch(text) is None:
        return Refusal("invalid", f"not {ID_LENGTH} characters of base64url, as every id is")
    content = base64.urlsafe_b64decode(text)
    format, segment, number, of_model, version, microseconds, _ = _HEAD.unpack_from(content)
    if format != _FORMAT or number not in begun:
        return Refusal("invalid", "not signed by a key of this service, or by one given up since")
    mac = begun[number].copy()
    mac.update(content[:_SIGNED])
    digest = content[_SIGNED:]
    if not compare_digest(mac.digest(), digest):
        return Refusal("invalid", "changed, or not made by this service")
    # From here on it is ours, and says what we wrote.
    made_at = microseconds / 1e6
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
    return Prediction(
        of_model, version, made_at, raw_confidence, confidence, predicted, digest, segment
    )


def _mac(key: SigningKey) -> Any:
    return _begun(key.secret).copy()


# The key is hashed once, not for every batch.
@lru_cache(maxsize=16)
def _begun(secret: bytes) -> Any:
    return hashlib.blake2b(key=secret, digest_size=_MAC_BYTES, person=_PURPOSE)
