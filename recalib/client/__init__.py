"""Python client of `recalib serve`; needs `pip install 'recalib[client]'`.

>>> from recalib.client import Client
>>> with Client("http://127.0.0.1:8000") as client:             # doctest: +SKIP
...     probabilities = client.calibrate("resnet", logits)
"""

from recalib.client.aggregator import Aggregated, Aggregator
from recalib.client.clients import AsyncClient, Client
from recalib.client.errors import (
    AuthenticationError,
    InvalidRequestError,
    InvalidResponseError,
    JobFailedError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RequestTooLargeError,
    ResourceConflictError,
    ResourceNotFoundError,
    ResponseFormatError,
    ServerTimeoutError,
    ServiceError,
    UnreachableError,
    UnsupportedMediaTypeError,
    Violation,
)
from recalib.client.operations import Retries
from recalib.client.results import Labelled, Likeliest, Predictions
from recalib.contract.calibrators import Alias, AliasChange, Calibrator
from recalib.contract.datasets import Dataset, Estimate
from recalib.contract.evaluations import (
    Change,
    Evaluation,
    EvaluationPicture,
    LabelResult,
    SegmentResult,
    VersionResult,
)
from recalib.contract.events import AuditEntry, Delivery, Event, Webhook
from recalib.contract.jobs import Batch, Job
from recalib.contract.jobs import Progress as JobProgress
from recalib.contract.labels import LabelOutcome
from recalib.contract.labels import TrafficAnswer as CountedTraffic
from recalib.contract.models import Deletion, Model
from recalib.contract.monitoring import CandidateReport as Candidate
from recalib.contract.monitoring import HistoryEntry as MonitoringEntry
from recalib.contract.monitoring import MonitoringEvent
from recalib.contract.monitoring import MonitoringReport as Monitoring
from recalib.contract.monitoring import Ready as Readiness
from recalib.contract.monitoring import SegmentReport as SegmentState
from recalib.contract.monitoring import WindowReport as MonitoringWindow

__all__ = [
    "Aggregated",
    "Aggregator",
    "Alias",
    "AliasChange",
    "AsyncClient",
    "AuditEntry",
    "AuthenticationError",
    "Batch",
    "Calibrator",
    "Candidate",
    "Change",
    "Client",
    "CountedTraffic",
    "Dataset",
    "Deletion",
    "Delivery",
    "Estimate",
    "Evaluation",
    "EvaluationPicture",
    "Event",
    "InvalidRequestError",
    "InvalidResponseError",
    "Job",
    "JobFailedError",
    "JobProgress",
    "LabelOutcome",
    "LabelResult",
    "Labelled",
    "Likeliest",
    "Model",
    "Monitoring",
    "MonitoringEntry",
    "MonitoringEvent",
    "MonitoringWindow",
    "OverloadedError",
    "PermissionDeniedError",
    "Predictions",
    "RateLimitError",
    "Readiness",
    "RequestTooLargeError",
    "ResourceConflictError",
    "ResourceNotFoundError",
    "ResponseFormatError",
    "Retries",
    "SegmentResult",
    "SegmentState",
    "ServerTimeoutError",
    "ServiceError",
    "UnreachableError",
    "UnsupportedMediaTypeError",
    "VersionResult",
    "Violation",
    "Webhook",
]
