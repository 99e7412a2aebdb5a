"""Requests for evaluations."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.schemas import Text, Version

#: The page has a section for each version; more are hard to compare.
MAX_VERSIONS = 8


class EvaluationCreate(BaseModel):
    """A request to measure versions on a data set."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text = Field(description="Name of a data set of the model.")
    versions: list[Version] = Field(
        min_length=1,
        max_length=MAX_VERSIONS,
        description="Numbers or aliases of versions, or `identity` for the model without a "
        "calibrator. An alias means the version that it points to now.",
    )
    baseline: Version | None = Field(
        None,
        description="The version that the others are compared with; it is measured too. By default "
        "the first.",
    )
    segments: list[Text] = Field(
        [],
        max_length=4,
        description="Columns of the npz, csv, jsonl, parquet or arrow file of the data set, such "
        "as a country: each version is measured on each of their values too, at most 200 together.",
    )
