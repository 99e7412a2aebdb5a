"""All tables of the registry, as after the newest migration.

A test compares this with the migrated schema in both databases.
"""

from __future__ import annotations

from recalib.registry.tables.access import (
    api_keys,
    audit,
    idempotency,
    sessions,
    signing_keys,
)
from recalib.registry.tables.base import METADATA
from recalib.registry.tables.catalogue import (
    alias_changes,
    alias_revision,
    aliases,
    calibrators,
    datasets,
    jobs,
    logit_scales,
    models,
    tombstones,
)
from recalib.registry.tables.monitoring import (
    adaptations,
    assessments,
    candidates,
    captures,
    class_traffic,
    cohorts,
    labels,
    monitoring_events,
    monitors,
    traffic,
)
from recalib.registry.tables.notification import (
    event_sequence,
    events,
    webhook_deliveries,
    webhooks,
)

__all__ = [
    "METADATA",
    "adaptations",
    "alias_changes",
    "alias_revision",
    "aliases",
    "api_keys",
    "assessments",
    "audit",
    "calibrators",
    "candidates",
    "captures",
    "class_traffic",
    "cohorts",
    "datasets",
    "event_sequence",
    "events",
    "idempotency",
    "jobs",
    "labels",
    "logit_scales",
    "models",
    "monitoring_events",
    "monitors",
    "sessions",
    "signing_keys",
    "tombstones",
    "traffic",
    "webhook_deliveries",
    "webhooks",
]
