"""Bodies of uploads in JSON: data, which documents the interface, and references."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from pydantic import BaseModel, ConfigDict, Field

_Probability = Annotated[float, Meta(ge=0, le=1)]
_Class = Annotated[int, Meta(ge=0)]
_Bit = Annotated[int, Meta(ge=0, le=1)]


class Data(msgspec.Struct, kw_only=True):
    """`logits` or `probabilities`, and a label for each row."""

    #: (N, K), or of two classes (N,); null masks a class.
    logits: list[list[float | None] | float] | UnsetType = UNSET
    #: In place of logits.
    probabilities: list[list[_Probability] | _Probability] | UnsetType = UNSET
    #: The class of each row; for a multilabel model a list of K zeros and ones.
    labels: Annotated[list[_Class | list[_Bit]], Meta(min_length=1)]


class DatasetReference(BaseModel):
    """Files that stay where they are."""

    model_config = ConfigDict(extra="forbid")

    uri: str = Field(
        description="A file, a folder or a glob within a root of the server: `s3://bucket/path`, "
        "`gs://bucket/path` or `file:///path`.",
        max_length=2000,
    )
    digest: str | None = Field(
        None,
        description="Expected SHA-256 in hex: of the content of a single file; of several, of the "
        "output of `sha256sum`, with names relative to the folder of the URI, in order.",
        pattern="^[0-9a-f]{64}$",
    )
