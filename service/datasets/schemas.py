"""The request for a data set by reference."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
