"""A log whose answers are adapted to label shift, as a server would have given them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from recalib.drift import ClassRows
from recalib.replay.columns import LogRows
from recalib.replay.promises import Promises, kept_of
from recalib.shift import AdaptedStream


def adapted_rows(
    stream: AdaptedStream,
    rows: LogRows,
    watched: Sequence[int],
    promises: Promises,
) -> LogRows:
    """Return rows, sorted by time and with `matrix` and `label`, with the answers of the stream.

    Parameters
    ----------
    watched: indices of classes for `class_rows`.
    promises: for `kept`.
    """
    if rows.matrix is None or rows.label is None or not len(rows.time):
        return rows
    answers = stream.answer(rows.time, rows.matrix, rows.label, rows.delay)
    predicted, class_rows = answers.argmax(axis=1), None
    if watched:
        columns = answers, rows.label, rows.time, watched
        class_rows = ClassRows.from_probabilities(*columns, groups=rows.group)
    return dataclasses.replace(
        rows,
        confidence=answers.max(axis=1).astype(np.float64),
        correct=np.where(rows.label < 0, np.nan, rows.label == predicted),
        predicted=predicted,
        class_rows=class_rows,
        matrix=answers,
        kept=kept_of(answers, rows.label, promises),
    )
