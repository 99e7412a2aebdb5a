"""Schema of a model, with its settings."""

from __future__ import annotations

from collections.abc import Sequence

from recalib import registry
from recalib.contract.models import Model as ModelResource
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings


class Model(ModelResource):
    """A registered classifier."""

    monitoring: MonitoringSettings = MonitoringSettings()  # type: ignore[assignment]
    retention: RetentionSettings = RetentionSettings()  # type: ignore[assignment]

    @classmethod
    def of(cls, model: registry.Model, warnings: Sequence[str] = ()) -> Model:
        """Return the wire form of a model."""
        return cls.model_validate({**vars(model), "warnings": warnings})
