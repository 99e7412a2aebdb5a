"""Requests for batches."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from recalib.files.probabilities import ProbabilityFormat
from service.schemas import VERSION_DESCRIPTION, Text, Version

SETS_DESCRIPTION = "Whether the result also has `sets`: the prediction sets of each row."

ACCEPTED_DESCRIPTION = (
    "Whether the result also has `accepted`: whether each row reaches the threshold of rejection."
)


class BatchCreate(BaseModel):
    """A request to calibrate the rows of a data set."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text = Field(description="Name of a data set of the model.")
    version: Version = Field("champion", description=VERSION_DESCRIPTION)
    format: ProbabilityFormat = Field("parquet", description="Format of the result.")
    sets: bool = Field(False, description=SETS_DESCRIPTION)
    accepted: bool = Field(False, description=ACCEPTED_DESCRIPTION)
