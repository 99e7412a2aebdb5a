"""Durable state: models, datasets, calibrators, aliases, jobs, blobs.

>>> registry = Registry("sqlite:////var/lib/recalib/recalib.db", "file:///var/lib/recalib/blobs")
>>> registry.migrate()                                              # doctest: +SKIP
>>> with registry.transaction() as tx:                              # doctest: +SKIP
...     tx.models.create("resnet", labels=None, classes=10, actor="me")

One module per table holds all its queries. Callers get frozen records, never rows.
"""

from recalib.contract.events import DeliveryState
from recalib.contract.jobs import JobState
from recalib.contract.models import Task
from recalib.core.monitoring_settings import MAX_SEGMENTS, MonitoringSettings
from recalib.core.resource_names import check_name, is_name
from recalib.core.retention_settings import RetentionSettings
from recalib.registry.blobs import BlobStore, BlobWriter
from recalib.registry.labels import LabelColumns
from recalib.registry.records import (
    Alias,
    AliasChange,
    Assessment,
    AuditEntry,
    CalibratorVersion,
    Capture,
    Challenger,
    CohortRow,
    Dataset,
    Delivery,
    DueDelivery,
    Event,
    ExpectedVersion,
    Job,
    LabelledPrediction,
    Lease,
    Model,
    MonitoringEvent,
    MonitorRow,
    Serving,
    StoredResponse,
    Webhook,
    WebhookLease,
)
from recalib.registry.registry import Registry
from recalib.registry.traffic import ClassTrafficCount, TrafficCount, merge_counts
from recalib.registry.transaction import Transaction

__all__ = [
    "MAX_SEGMENTS",
    "Alias",
    "AliasChange",
    "Assessment",
    "AuditEntry",
    "BlobStore",
    "BlobWriter",
    "CalibratorVersion",
    "Capture",
    "Challenger",
    "ClassTrafficCount",
    "CohortRow",
    "Dataset",
    "Delivery",
    "DeliveryState",
    "DueDelivery",
    "Event",
    "ExpectedVersion",
    "Job",
    "JobState",
    "LabelColumns",
    "LabelledPrediction",
    "Lease",
    "Model",
    "MonitorRow",
    "MonitoringEvent",
    "MonitoringSettings",
    "Registry",
    "RetentionSettings",
    "Serving",
    "StoredResponse",
    "Task",
    "TrafficCount",
    "Transaction",
    "Webhook",
    "WebhookLease",
    "check_name",
    "is_name",
    "merge_counts",
]
