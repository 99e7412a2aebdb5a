"""Calibrators and aliases."""

from __future__ import annotations

from typing import Any

from recalib.contract.base import Items, Page, Resource, Time


class Calibrator(Resource):
    """A fitted calibrator."""

    #: Name of the model.
    model: str
    #: Number of the version.
    version: int
    #: Name of the data set of the fit; null if it is not known.
    dataset: str | None
    #: Id of the job that made it.
    job: str
    #: When it was created.
    created_at: Time
    #: Description of the calibrator and its fit.
    card: dict[str, Any]
    #: Description by a person.
    description: str = ""
    #: Tags by a person.
    tags: tuple[str, ...] = ()


class CalibratorPage(Page[Calibrator]):
    """A page of calibrators, by version."""


class Alias(Resource):
    """A name that points to a version; `champion` serves by default."""

    #: Name of the alias.
    alias: str
    #: Name of the model.
    model: str
    #: Number of the version that it points to.
    version: int
    #: When it was set.
    updated_at: Time
    #: After a promotion: why the version cannot stay fresh under the model's monitoring settings,
    #: and what to do.
    warnings: tuple[str, ...] = ()


class AliasList(Items[Alias]):
    """All aliases of a model."""


class AliasChange(Resource):
    """A change of an alias."""

    #: When.
    at: Time
    #: Who did it.
    actor: str
    #: The version before; null for a new alias.
    from_version: int | None
    #: Null if the alias was deleted.
    to_version: int | None
    #: Why, in words.
    reason: str


class AliasHistory(Items[AliasChange]):
    """An alias' changes, newest first."""
