"""Durable state: models, datasets, calibrators, aliases, jobs, blobs.

>>> registry = Registry("sqlite:////var/lib/recalib/recalib.db", "file:///var/lib/recalib/blobs")
>>> registry.migrate()                                              # doctest: +SKIP
>>> with registry.transaction() as tx:                              # doctest: +SKIP
...     tx.models.create("resnet", labels=None, classes=10, actor="me")

One module per table holds all its queries. Callers get frozen records, never rows.
"""

from recalib.core.monitoring_settings import MAX_SEGMENTS, MonitoringSettings
from recalib.core.resource_names import check_name, is_name
from recalib.core.retention_settings import RetentionSettings
from recalib.registry.blobs import BlobStore, BlobWriter
from recalib.registry.labels import LabelColumns
from recalib.registry.records import (
    Alias,
    Assessment,
    CalibratorVersion,
    Capture,
    Challenger,
    CohortRow,
    Dataset,
    DueDelivery,
    ExpectedVersion,
    Job,
    Lease,
    Model,
    MonitorRow,
    WebhookLease,
)
from recalib.registry.registry import Registry
from recalib.registry.traffic import ClassTrafficCount, TrafficCount, merge_counts
from recalib.registry.transaction import Transaction
