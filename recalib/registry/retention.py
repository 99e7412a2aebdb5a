"""Retention settings of a model: how long its data sets, versions and labels are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from recalib.errors import InputError
from recalib.registry.monitoring_settings import MonitoringConfig

#: Limits of each setting, in seconds.
_MIN_SECONDS, _MAX_SECONDS = 60.0, 1e10


@dataclass(frozen=True)
class Retention:
    """Ages in seconds at which the resources of a model are deleted; None: never."""

    #: Of a data set that no unfinished job uses, since its upload.
    dataset_seconds: float | None = None
    #: Of a version that no alias has ever pointed at, since its publication.
    version_seconds: float | None = None
    #: Of a label, since its prediction; None: as long as the ids of predictions are valid.
    label_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not _MIN_SECONDS <= value <= _MAX_SECONDS:
                accepted = f"{_MIN_SECONDS:g} to {_MAX_SECONDS:g} seconds, or null"
                raise InputError(f"retention.{name}", found=repr(value)[:80], accepted=accepted)

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return the settings of a model's row; fields of a later version are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (stored or {}).items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)

    def check_monitoring(self, monitoring: MonitoringConfig) -> None:
        """Raise `InputError` if labels would be deleted before monitoring has read them."""
        least = monitoring.maturity_seconds + monitoring.cohort_seconds
        if self.label_seconds is not None and self.label_seconds < least:
            raise InputError(
                "retention.label_seconds",
                found=f"{self.label_seconds:g}",
                accepted=f"at least {least:g}: maturity_seconds and cohort_seconds of monitoring",
            )
