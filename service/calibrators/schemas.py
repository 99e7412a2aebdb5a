"""What calibrators and aliases look like on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from recalib.fitting.auto import AUTO
from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES
from service.http.integers import WHOLE
from service.http.types import Documented, Text
from service.times import iso

__all__ = [
    "MOST_VERSIONS",
    "Alias",
    "AliasChange",
    "AliasHistory",
    "AliasList",
    "AliasSet",
    "Calibrator",
    "CalibratorCreate",
    "CalibratorPage",
]

#: What an integer of the database holds.
MOST_VERSIONS = 2**31 - 1


class CalibratorCreate(BaseModel):
    """A fit to be done."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text = Field(description="Name of an uploaded data set of this model.")
    map: Annotated[Text, Documented({"enum": [*MAPS, AUTO]})] = Field(
        "temperature", description="The post-hoc map to fit; `auto` for what held-out rows prefer."
    )
    objective: Annotated[Text, Documented({"enum": [*OBJECTIVES]})] = Field(
        "nll", description="What the fit minimises."
    )
    options: dict[str, Any] = Field({}, description="Options of the map and of the objective.")
    promote: bool | Literal["if_better"] = Field(
        "if_better",
        description="Whether the new version becomes the champion: always, never, or if its "
        "cross-validated NLL beats the champion's (the classifier's own where there is none) by "
        "more than one standard error.",
    )


class Calibrator(BaseModel):
    """A fitted calibrator."""

    model: str
    version: int
    dataset: str | None
    job: str
    created_at: str
    card: dict[str, Any] = Field(description="What it is, and how its fit went.")

    @classmethod
    def of(cls, row: registry.CalibratorVersion) -> Calibrator:
        """Return the wire form of a published version."""
        return cls(
            model=row.model,
            version=row.version,
            dataset=row.dataset,
            job=row.job_id,
            created_at=iso(row.created_at),
            card=row.card,
        )


class CalibratorPage(BaseModel):
    """Some calibrators, by version."""

    items: list[Calibrator]
    next_cursor: str | None


class AliasSet(BaseModel):
    """Where an alias shall point."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Annotated[int, Field(ge=1, le=MOST_VERSIONS), WHOLE]
    reason: Text = Field("", max_length=500, description="Kept in the audit trail.")


class Alias(BaseModel):
    """A name that points to a version; `champion` is what serves by default."""

    alias: str
    model: str
    version: int
    updated_at: str

    @classmethod
    def of(cls, row: registry.Alias) -> Alias:
        """Return the wire form of an alias."""
        return cls(
            alias=row.alias,
            model=row.model,
            version=row.version,
            updated_at=iso(row.changed_at),
        )


class AliasList(BaseModel):
    """All aliases of a model."""

    items: list[Alias]


class AliasChange(BaseModel):
    """One entry of the audit trail."""

    at: str
    actor: str
    from_version: int | None
    to_version: int
    reason: str


class AliasHistory(BaseModel):
    """An alias' changes, newest first."""

    items: list[AliasChange]
