"""Schemas of calibrate requests and responses.

msgspec decodes requests, and orjson encodes responses directly from NumPy arrays: pydantic models
would take longer than everything else together. The pydantic models here only document.
"""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, Field


class CalibrateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Logits, or probabilities, in rows; null is a masked class.

    Numbers in place of rows are the log-odds, or the probabilities, of class 1 of 2.
    """

    #: (N, K), or (N,); either these or `probabilities`.
    logits: list[list[float | None] | float] | None = None
    #: (N, K), or (N,).
    probabilities: list[list[float] | float] | None = None


class Calibrated(BaseModel):
    """The calibrator of the response."""

    version: int | None = Field(description="Null for a model without a champion.")
    #: The map.
    map: str
    uncalibrated: bool = Field(
        False,
        description="True, and otherwise missing, if the model has no champion: the probabilities "
        "are those of the classifier, and no row has an id.",
    )
    adaptation: int = Field(
        0,
        description="Number of the state that adapted the probabilities to label shift; missing "
        "without one. Sets, intervals and `accepted` are not.",
    )


class _Answer(BaseModel):
    #: The calibrator of the answer.
    calibrator: Calibrated
    sets: list[list[int]] = Field(
        [],
        description="(N,); the class numbers, from 0, in the prediction set of each row. Only with "
        "`sets=true`.",
    )
    intervals: list[list[list[float]]] = Field(
        [],
        description="(N, K, 2); the Venn-Abers interval [p0, p1] of each probability. Only with "
        "`intervals=true`.",
    )
    accepted: list[bool] = Field(
        [],
        description="(N,); whether the confidence of each row reaches the version's threshold of "
        "rejection. Only with `accepted=true`.",
    )
    prediction_ids: list[str | None] = Field(
        [],
        description="(N,); the id of each row, by which its label can be sent later, or null. "
        "Missing if `ids` is 0.",
    )
    warnings: list[str] = Field(
        [], description="Why the rows may not be logits; missing if they look like some."
    )


class CalibrateAnswer(_Answer):
    """Calibrated probabilities, one row for each row of the request."""

    probabilities: list[list[float]] = Field(
        description="(N, K); rows sum to 1, except those of multilabel models."
    )


class Top(BaseModel):
    """The most likely classes of each row in descending order; ties by class number."""

    classes: list[list[int]] = Field(description="(N, k); class numbers, from 0.")
    probabilities: list[list[float]] = Field(description="(N, k).")
    labels: list[list[str]] | None = Field(
        None, description="(N, k); only if the model has labels."
    )


class TopAnswer(_Answer):
    """The most likely classes of each row, if the request has `top_k`."""

    #: The most likely classes.
    top_k: Top
