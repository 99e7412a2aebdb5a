"""Schema of a change of a description and of tags."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recalib.core.field_types import UNIQUE
from service.schemas.field_types import Text

Description = Annotated[Text, Field(max_length=10_000)]
Tags = Annotated[
    list[Annotated[Text, Field(min_length=1, max_length=100)]],
    Field(max_length=50),
    UNIQUE,
]


class DetailsUpdate(BaseModel):
    """A new description or new tags; a field that is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: It replaces the description.
    description: Description | None = None
    tags: Tags | None = Field(None, description="They replace the tags.")
