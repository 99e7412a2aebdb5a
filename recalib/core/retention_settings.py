"""Retention settings of a model: how long its data sets, versions and labels are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Self

from recalib.core.field_types import Interval, check_fields
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.errors import InputError

_Seconds = Annotated[float, Interval(ge=60, le=1e10)]


@dataclass(frozen=True)
class RetentionSettings:
    """Ages in seconds at which the resources of a model are deleted; null: never."""

    # pydantic reads it: requests have no other fields.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    #: Age since its upload of a data set that no unfinished job uses.
    dataset_seconds: _Seconds | None = None
    #: Age since its publication of a version that no alias has pointed at.
    version_seconds: _Seconds | None = None
    #: Age of a label since its prediction; at least `maturity_seconds` and `cohort_seconds` of
    #: monitoring. Null: as long as prediction ids are valid.
    label_seconds: _Seconds | None = None

    def __post_init__(self) -> None:
        check_fields(self, prefix="retention.")

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return the settings of a model's row; fields of a later version are ignored."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in (stored or {}).items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)

    def check_monitoring(self, monitoring: MonitoringSettings) -> None:
        """Raise `InputError` if labels would be deleted before monitoring has read them."""
        least = monitoring.maturity_seconds + monitoring.cohort_seconds
        if self.label_seconds is not None and self.label_seconds < least:
            raise InputError(
                "retention.label_seconds",
                found=f"{self.label_seconds:g}",
                accepted=f"at least {least:g}: maturity_seconds and cohort_seconds of monitoring",
            )
