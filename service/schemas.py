"""Schemas and field types that several features share: text, versions, details, models, events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recalib import registry
from recalib.contract.models import Model as ModelResource
from recalib.core.field_types import STORABLE, UNIQUE, Documented, Interval
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings
from recalib.errors import InputError

#: The largest integer of the database.
MAX_VERSION = 2**31 - 1


#: An alias: a name that does not consist of digits only.
ALIAS = Documented(
    {
        "pattern": r"^([A-Za-z]|[0-9]+[A-Za-z._\-])[A-Za-z0-9._\-]*$",
        "maxLength": 128,
    }
)


def _storable(text: str) -> str:
    # PostgreSQL text cannot hold NUL, and a lone surrogate has no UTF-8.
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("text", "text of Unicode characters other than NUL")
    return text


Text = Annotated[str, AfterValidator(_storable), STORABLE]


#: A number or an alias of a version.
Version = Annotated[int, Interval(ge=1, le=MAX_VERSION)] | Text
VERSION_DESCRIPTION = (
    "A number or an alias of a version. An alias means the version that it points to now."
)


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


class Model(ModelResource):
    """A registered classifier."""

    monitoring: MonitoringSettings = MonitoringSettings()  # type: ignore[assignment]
    retention: RetentionSettings = RetentionSettings()  # type: ignore[assignment]

    @classmethod
    def of(cls, model: registry.Model, warnings: Sequence[str] = ()) -> Model:
        """Return the wire form of a model."""
        return cls.model_validate({**vars(model), "warnings": warnings})


_TYPE = re.compile(r"[a-z_]{1,32}(\.[a-z_]{1,31})?")
_MAX_TYPES = 100


def check_event_types(field: str, types: Sequence[str]) -> None:
    """Raise `InputError` if there are too many types, or one has no valid form."""
    if len(types) > _MAX_TYPES:
        raise InputError(field, found=f"{len(types)} types", accepted=f"at most {_MAX_TYPES}")
    for type_ in types:
        if not _TYPE.fullmatch(type_):
            accepted = "a type such as job.failed, or its first word"
            raise InputError(field, found=repr(type_[:80]), accepted=accepted)
