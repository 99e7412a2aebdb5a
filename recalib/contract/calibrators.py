"""Calibrators and aliases."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from recalib.contract.base import Items, Page, Resource, Time


class Calibrator(Resource):
    """A fitted calibrator."""

    model: str
    version: int
    dataset: str | None
    job: str
    created_at: Time
    card: dict[str, Any] = Field(description="Description of the calibrator and its fit.")
    description: str = Field("", description="Description by a person.")
    tags: tuple[str, ...] = ()


class CalibratorPage(Page[Calibrator]):
    """A page of calibrators, by version."""


class Alias(Resource):
    """A name that points to a version; `champion` serves by default."""

    alias: str
    model: str
    version: int
    updated_at: Time
    warnings: tuple[str, ...] = Field(
        (),
        description="After a promotion: why the version cannot stay fresh under the model's "
        "monitoring settings, and what to do.",
    )


class AliasList(Items[Alias]):
    """All aliases of a model."""


class AliasChange(Resource):
    """A change of an alias."""

    at: Time
    actor: str
    from_version: int | None
    to_version: int | None = Field(description="Null if the alias was deleted.")
    reason: str


class AliasHistory(Items[AliasChange]):
    """An alias' changes, newest first."""
