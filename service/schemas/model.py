"""Schema of a model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from recalib import registry
from recalib.core.card import PredictionPolicy
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings
from service.schemas.field_types import Time
from service.times import iso


class Model(BaseModel):
    """A registered classifier."""

    name: str
    classes: int = Field(description="K, the number of logits of a row.")
    labels: list[str] | None = Field(description="Names of the classes, where they were given.")
    task: registry.Task = Field(
        "multiclass", description="`multilabel`: each of the K labels has its own probability."
    )
    created_at: Time
    monitoring: MonitoringSettings = MonitoringSettings()
    description: str = ""
    tags: list[str] = []
    retention: RetentionSettings = RetentionSettings()
    predictions: PredictionPolicy | None = Field(
        None,
        description="Which predictions fits and refits may change. Null for a multilabel model, and"
        " for a model that was created before this setting: its fits keep the predicted class, its "
        "refits what the map of the champion keeps.",
    )
    warnings: list[str] = Field(
        [],
        description="After a change of the monitoring settings: why the champion cannot stay fresh "
        "under them, and what to do.",
    )

    @classmethod
    def of(cls, model: registry.Model, warnings: Sequence[str] = ()) -> Model:
        """Return the wire form of a model."""
        return cls(
            name=model.name,
            classes=model.classes,
            labels=list(model.labels) if model.labels is not None else None,
            task=model.task,
            created_at=iso(model.created_at),
            monitoring=model.monitoring,
            description=model.description,
            tags=list(model.tags),
            retention=model.retention,
            predictions=model.predictions,
            warnings=list(warnings),
        )
