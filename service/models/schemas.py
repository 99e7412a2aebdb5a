"""What models look like on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from service.http.integers import WHOLE
from service.http.types import NAME, Documented, Text
from service.monitoring.schemas import MonitoringSettings
from service.times import iso

__all__ = ["MAX_CLASSES", "Model", "ModelCreate", "ModelPage"]

MAX_CLASSES = 1_000_000


class ModelCreate(BaseModel):
    """A classifier to be calibrated."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, NAME] = Field(
        description="Letters, digits, '.', '_' and '-'; at most 128 of them."
    )
    classes: (
        Annotated[int, Field(ge=2, le=MAX_CLASSES), WHOLE]
        | Annotated[
            list[Text],
            Field(min_length=2, max_length=MAX_CLASSES),
            Documented({"uniqueItems": True}),
        ]
    ) = Field(description="The number of classes, or their labels in the order of the logits.")
    monitoring: MonitoringSettings = Field(
        MonitoringSettings(), description="What is watched; it can be changed later."
    )


class Model(BaseModel):
    """A registered classifier."""

    name: str
    classes: int = Field(description="K, the number of logits of a row.")
    labels: list[str] | None = Field(description="Names of the classes, where they were given.")
    created_at: str = Field(description="ISO 8601, UTC.")
    monitoring: MonitoringSettings = MonitoringSettings()

    @classmethod
    def of(cls, model: registry.Model) -> Model:
        """Return the wire form of a model."""
        return cls(
            name=model.name,
            classes=model.classes,
            labels=list(model.labels) if model.labels is not None else None,
            created_at=iso(model.created_at),
            monitoring=MonitoringSettings.of(model.monitoring),
        )


class ModelPage(BaseModel):
    """Some models, ordered by name."""

    items: list[Model]
    next_cursor: str | None
