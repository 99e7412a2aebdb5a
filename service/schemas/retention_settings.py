"""Schema of the retention settings of a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_Seconds = Annotated[float, Field(ge=60, le=1e10, allow_inf_nan=False)]


class RetentionSettings(BaseModel):
    """Ages in seconds at which the resources of a model are deleted; null: never."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dataset_seconds: _Seconds | None = Field(
        None, description="Age since its upload of a data set that no unfinished job uses."
    )
    version_seconds: _Seconds | None = Field(
        None,
        description="Age since its publication of a version that no alias has pointed at.",
    )
    label_seconds: _Seconds | None = Field(
        None,
        description="Age of a label since its prediction; at least `maturity_seconds` and "
        "`cohort_seconds` of monitoring. Null: as long as prediction ids are valid.",
    )
