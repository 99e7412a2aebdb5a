"""A client of `recalib serve`, blocking or asynchronous; needs `pip install 'recalib[client]'`.

>>> from recalib.client import Client
>>> with Client("http://127.0.0.1:8000") as client:             # doctest: +SKIP
...     probabilities = client.calibrate("resnet", logits)
"""

from recalib.client.clients import AsyncClient, Client
from recalib.client.errors import (
    ContradictionError,
    JobFailedError,
    MalformedAnswerError,
    MissingError,
    OverloadedError,
    RefusedAsTooLargeError,
    RefusedError,
    RefusedFormatError,
    RefusedFormError,
    ServiceError,
    TimedOutError,
    UnreachableError,
    Violation,
)
from recalib.client.plans import Retries
from recalib.client.results import (
    Alias,
    AliasChange,
    AuditEntry,
    Calibrator,
    Candidate,
    Dataset,
    Estimate,
    Job,
    JobProgress,
    Labelled,
    LabelOutcome,
    Likeliest,
    Model,
    Monitoring,
    MonitoringEvent,
    MonitoringWindow,
    Predictions,
    Readiness,
    SegmentState,
)

__all__ = [
    "Alias",
    "AliasChange",
    "AsyncClient",
    "AuditEntry",
    "Calibrator",
    "Candidate",
    "Client",
    "ContradictionError",
    "Dataset",
    "Estimate",
    "Job",
    "JobFailedError",
    "JobProgress",
    "LabelOutcome",
    "Labelled",
    "Likeliest",
    "MalformedAnswerError",
    "MissingError",
    "Model",
    "Monitoring",
    "MonitoringEvent",
    "MonitoringWindow",
    "OverloadedError",
    "Predictions",
    "Readiness",
    "RefusedAsTooLargeError",
    "RefusedError",
    "RefusedFormError",
    "RefusedFormatError",
    "Retries",
    "SegmentState",
    "ServiceError",
    "TimedOutError",
    "UnreachableError",
    "Violation",
]
