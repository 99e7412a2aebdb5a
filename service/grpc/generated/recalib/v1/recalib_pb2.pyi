import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Input(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_LOGITS: _ClassVar[Input]
    INPUT_PROBABILITIES: _ClassVar[Input]

class Datatype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATATYPE_FP32: _ClassVar[Datatype]
    DATATYPE_FP64: _ClassVar[Datatype]
    DATATYPE_FP16: _ClassVar[Datatype]
    DATATYPE_BF16: _ClassVar[Datatype]

class Promote(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROMOTE_IF_BETTER: _ClassVar[Promote]
    PROMOTE_ALWAYS: _ClassVar[Promote]
    PROMOTE_NEVER: _ClassVar[Promote]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]

class LabelStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_STATUS_UNSPECIFIED: _ClassVar[LabelStatus]
    LABEL_STATUS_ACCEPTED: _ClassVar[LabelStatus]
    LABEL_STATUS_DUPLICATE: _ClassVar[LabelStatus]
    LABEL_STATUS_CONFLICT: _ClassVar[LabelStatus]
    LABEL_STATUS_EXPIRED: _ClassVar[LabelStatus]
    LABEL_STATUS_INVALID: _ClassVar[LabelStatus]

class Refit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFIT_ON_STALE: _ClassVar[Refit]
    REFIT_MANUAL: _ClassVar[Refit]

class Adaptation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADAPTATION_NONE: _ClassVar[Adaptation]
    ADAPTATION_SHADOW: _ClassVar[Adaptation]
    ADAPTATION_LABEL_SHIFT: _ClassVar[Adaptation]

class PromoteCandidate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROMOTE_CANDIDATE_AUTOMATIC: _ClassVar[PromoteCandidate]
    PROMOTE_CANDIDATE_MANUAL: _ClassVar[PromoteCandidate]

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_MULTICLASS: _ClassVar[Task]
    TASK_MULTILABEL: _ClassVar[Task]

class PredictionPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREDICTION_POLICY_MAY_CHANGE: _ClassVar[PredictionPolicy]
    PREDICTION_POLICY_KEEP_ORDER: _ClassVar[PredictionPolicy]
    PREDICTION_POLICY_KEEP: _ClassVar[PredictionPolicy]

class CalibrationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALIBRATION_STATE_UNVERIFIED: _ClassVar[CalibrationState]
    CALIBRATION_STATE_FRESH: _ClassVar[CalibrationState]
    CALIBRATION_STATE_SUSPECT: _ClassVar[CalibrationState]
    CALIBRATION_STATE_STALE: _ClassVar[CalibrationState]

class BatchFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BATCH_FORMAT_PARQUET: _ClassVar[BatchFormat]
    BATCH_FORMAT_NPZ: _ClassVar[BatchFormat]

class EventOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_ORDER_NEWEST: _ClassVar[EventOrder]
    EVENT_ORDER_OLDEST: _ClassVar[EventOrder]

class WebhookFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEBHOOK_FORMAT_RECALIB: _ClassVar[WebhookFormat]
    WEBHOOK_FORMAT_SLACK: _ClassVar[WebhookFormat]
    WEBHOOK_FORMAT_ALERTMANAGER: _ClassVar[WebhookFormat]

class DeliveryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_STATE_UNSPECIFIED: _ClassVar[DeliveryState]
    DELIVERY_STATE_PENDING: _ClassVar[DeliveryState]
    DELIVERY_STATE_DELIVERED: _ClassVar[DeliveryState]
    DELIVERY_STATE_DEAD: _ClassVar[DeliveryState]
INPUT_LOGITS: Input
INPUT_PROBABILITIES: Input
DATATYPE_FP32: Datatype
DATATYPE_FP64: Datatype
DATATYPE_FP16: Datatype
DATATYPE_BF16: Datatype
PROMOTE_IF_BETTER: Promote
PROMOTE_ALWAYS: Promote
PROMOTE_NEVER: Promote
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
LABEL_STATUS_UNSPECIFIED: LabelStatus
LABEL_STATUS_ACCEPTED: LabelStatus
LABEL_STATUS_DUPLICATE: LabelStatus
LABEL_STATUS_CONFLICT: LabelStatus
LABEL_STATUS_EXPIRED: LabelStatus
LABEL_STATUS_INVALID: LabelStatus
REFIT_ON_STALE: Refit
REFIT_MANUAL: Refit
ADAPTATION_NONE: Adaptation
ADAPTATION_SHADOW: Adaptation
ADAPTATION_LABEL_SHIFT: Adaptation
PROMOTE_CANDIDATE_AUTOMATIC: PromoteCandidate
PROMOTE_CANDIDATE_MANUAL: PromoteCandidate
TASK_MULTICLASS: Task
TASK_MULTILABEL: Task
PREDICTION_POLICY_MAY_CHANGE: PredictionPolicy
PREDICTION_POLICY_KEEP_ORDER: PredictionPolicy
PREDICTION_POLICY_KEEP: PredictionPolicy
CALIBRATION_STATE_UNVERIFIED: CalibrationState
CALIBRATION_STATE_FRESH: CalibrationState
CALIBRATION_STATE_SUSPECT: CalibrationState
CALIBRATION_STATE_STALE: CalibrationState
BATCH_FORMAT_PARQUET: BatchFormat
BATCH_FORMAT_NPZ: BatchFormat
EVENT_ORDER_NEWEST: EventOrder
EVENT_ORDER_OLDEST: EventOrder
WEBHOOK_FORMAT_RECALIB: WebhookFormat
WEBHOOK_FORMAT_SLACK: WebhookFormat
WEBHOOK_FORMAT_ALERTMANAGER: WebhookFormat
DELIVERY_STATE_UNSPECIFIED: DeliveryState
DELIVERY_STATE_PENDING: DeliveryState
DELIVERY_STATE_DELIVERED: DeliveryState
DELIVERY_STATE_DEAD: DeliveryState

class ClassLabels(_message.Message):
    __slots__ = ("labels",)
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, labels: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateModelRequest(_message.Message):
    __slots__ = ("name", "classes", "labels", "monitoring", "task", "predictions", "serve_uncalibrated")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MONITORING_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    SERVE_UNCALIBRATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    classes: int
    labels: ClassLabels
    monitoring: MonitoringSettings
    task: Task
    predictions: PredictionPolicy
    serve_uncalibrated: bool
    def __init__(self, name: _Optional[str] = ..., classes: _Optional[int] = ..., labels: _Optional[_Union[ClassLabels, _Mapping]] = ..., monitoring: _Optional[_Union[MonitoringSettings, _Mapping]] = ..., task: _Optional[_Union[Task, str]] = ..., predictions: _Optional[_Union[PredictionPolicy, str]] = ..., serve_uncalibrated: _Optional[bool] = ...) -> None: ...

class MonitoringSettings(_message.Message):
    __slots__ = ("objective", "tolerance", "alpha", "maturity_seconds", "cohort_seconds", "least_labels", "window_labels", "segments", "capture", "capture_seconds", "refit", "refit_every_seconds", "promote", "selection_ratio", "classes", "label_pause_seconds", "adaptation")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    MATURITY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COHORT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEAST_LABELS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_LABELS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REFIT_FIELD_NUMBER: _ClassVar[int]
    REFIT_EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_RATIO_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    LABEL_PAUSE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    objective: float
    tolerance: float
    alpha: float
    maturity_seconds: float
    cohort_seconds: float
    least_labels: int
    window_labels: int
    segments: _containers.RepeatedScalarFieldContainer[str]
    capture: float
    capture_seconds: float
    refit: Refit
    refit_every_seconds: float
    promote: PromoteCandidate
    selection_ratio: float
    classes: _containers.RepeatedScalarFieldContainer[str]
    label_pause_seconds: float
    adaptation: Adaptation
    def __init__(self, objective: _Optional[float] = ..., tolerance: _Optional[float] = ..., alpha: _Optional[float] = ..., maturity_seconds: _Optional[float] = ..., cohort_seconds: _Optional[float] = ..., least_labels: _Optional[int] = ..., window_labels: _Optional[int] = ..., segments: _Optional[_Iterable[str]] = ..., capture: _Optional[float] = ..., capture_seconds: _Optional[float] = ..., refit: _Optional[_Union[Refit, str]] = ..., refit_every_seconds: _Optional[float] = ..., promote: _Optional[_Union[PromoteCandidate, str]] = ..., selection_ratio: _Optional[float] = ..., classes: _Optional[_Iterable[str]] = ..., label_pause_seconds: _Optional[float] = ..., adaptation: _Optional[_Union[Adaptation, str]] = ...) -> None: ...

class GetMonitoringRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class SegmentReport(_message.Message):
    __slots__ = ("segment", "state", "reason", "evidence", "may_be_selection")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_SELECTION_FIELD_NUMBER: _ClassVar[int]
    segment: str
    state: CalibrationState
    reason: str
    evidence: _struct_pb2.Struct
    may_be_selection: bool
    def __init__(self, segment: _Optional[str] = ..., state: _Optional[_Union[CalibrationState, str]] = ..., reason: _Optional[str] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., may_be_selection: _Optional[bool] = ...) -> None: ...

class WindowReport(_message.Message):
    __slots__ = ("start", "end", "measured", "replayed")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    measured: _struct_pb2.Struct
    replayed: bool
    def __init__(self, start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., measured: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class ListMonitoringHistoryRequest(_message.Message):
    __slots__ = ("model", "version", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class HistoryEntry(_message.Message):
    __slots__ = ("version", "start", "end", "assessed_at", "state", "reason", "evidence", "measured", "replayed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ASSESSED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    version: int
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    assessed_at: _timestamp_pb2.Timestamp
    state: CalibrationState
    reason: str
    evidence: _struct_pb2.Struct
    measured: _struct_pb2.Struct
    replayed: bool
    def __init__(self, version: _Optional[int] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., assessed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[CalibrationState, str]] = ..., reason: _Optional[str] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., measured: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class MonitoringHistory(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[HistoryEntry]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[HistoryEntry, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class MonitoringEvent(_message.Message):
    __slots__ = ("at", "version", "kind", "actor", "reason", "evidence", "replayed")
    AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    version: int
    kind: str
    actor: str
    reason: str
    evidence: _struct_pb2.Struct
    replayed: bool
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[int] = ..., kind: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class ReplayHeader(_message.Message):
    __slots__ = ("model", "version", "to_now")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_NOW_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    to_now: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., to_now: _Optional[bool] = ...) -> None: ...

class CreateReplayRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: ReplayHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[ReplayHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class CreateRefitRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class DropCandidateRequest(_message.Message):
    __slots__ = ("model", "version", "reason")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    reason: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class CandidateReport(_message.Message):
    __slots__ = ("version", "verdict", "began_at", "evidence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    verdict: str
    began_at: _timestamp_pb2.Timestamp
    evidence: _struct_pb2.Struct
    def __init__(self, version: _Optional[int] = ..., verdict: _Optional[str] = ..., began_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class MonitoringReport(_message.Message):
    __slots__ = ("model", "version", "state", "since", "reason", "evidence", "onset", "segments", "windows", "late_labels", "assessed_at", "events", "candidate", "captured_rows", "may_be_selection", "warnings", "classes", "replayed_through", "alert", "adaptation")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    ONSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    LATE_LABELS_FIELD_NUMBER: _ClassVar[int]
    ASSESSED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_SELECTION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_THROUGH_FIELD_NUMBER: _ClassVar[int]
    ALERT_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    state: CalibrationState
    since: _timestamp_pb2.Timestamp
    reason: str
    evidence: _struct_pb2.Struct
    onset: _timestamp_pb2.Timestamp
    segments: _containers.RepeatedCompositeFieldContainer[SegmentReport]
    windows: _containers.RepeatedCompositeFieldContainer[WindowReport]
    late_labels: int
    assessed_at: _timestamp_pb2.Timestamp
    events: _containers.RepeatedCompositeFieldContainer[MonitoringEvent]
    candidate: CandidateReport
    captured_rows: int
    may_be_selection: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    classes: _struct_pb2.Struct
    replayed_through: _timestamp_pb2.Timestamp
    alert: Alert
    adaptation: _struct_pb2.Struct
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[_Union[CalibrationState, str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., onset: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[SegmentReport, _Mapping]]] = ..., windows: _Optional[_Iterable[_Union[WindowReport, _Mapping]]] = ..., late_labels: _Optional[int] = ..., assessed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., events: _Optional[_Iterable[_Union[MonitoringEvent, _Mapping]]] = ..., candidate: _Optional[_Union[CandidateReport, _Mapping]] = ..., captured_rows: _Optional[int] = ..., may_be_selection: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ..., classes: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., replayed_through: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., alert: _Optional[_Union[Alert, _Mapping]] = ..., adaptation: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Alert(_message.Message):
    __slots__ = ("onset", "labels", "accuracy", "confidence", "low", "high", "direction", "places", "versions", "summary", "command", "runbook", "dashboard")
    ONSET_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    RUNBOOK_FIELD_NUMBER: _ClassVar[int]
    DASHBOARD_FIELD_NUMBER: _ClassVar[int]
    onset: _timestamp_pb2.Timestamp
    labels: int
    accuracy: float
    confidence: float
    low: float
    high: float
    direction: str
    places: _containers.RepeatedCompositeFieldContainer[AlertPlace]
    versions: _containers.RepeatedCompositeFieldContainer[VersionComparison]
    summary: str
    command: str
    runbook: str
    dashboard: str
    def __init__(self, onset: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[int] = ..., accuracy: _Optional[float] = ..., confidence: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., direction: _Optional[str] = ..., places: _Optional[_Iterable[_Union[AlertPlace, _Mapping]]] = ..., versions: _Optional[_Iterable[_Union[VersionComparison, _Mapping]]] = ..., summary: _Optional[str] = ..., command: _Optional[str] = ..., runbook: _Optional[str] = ..., dashboard: _Optional[str] = ...) -> None: ...

class AlertPlace(_message.Message):
    __slots__ = ("kind", "name", "labels", "accuracy", "confidence", "low", "high")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    labels: int
    accuracy: float
    confidence: float
    low: float
    high: float
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[int] = ..., accuracy: _Optional[float] = ..., confidence: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class VersionComparison(_message.Message):
    __slots__ = ("version", "labels", "difference", "low", "high")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    version: int
    labels: int
    difference: float
    low: float
    high: float
    def __init__(self, version: _Optional[int] = ..., labels: _Optional[int] = ..., difference: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class SetMonitoringRequest(_message.Message):
    __slots__ = ("model", "settings")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    settings: MonitoringSettings
    def __init__(self, model: _Optional[str] = ..., settings: _Optional[_Union[MonitoringSettings, _Mapping]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("limit", "cursor", "name", "tag", "state")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    name: str
    tag: str
    state: CalibrationState
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ..., name: _Optional[str] = ..., tag: _Optional[str] = ..., state: _Optional[_Union[CalibrationState, str]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "classes", "labels", "created_at", "monitoring", "warnings", "task", "description", "tags", "retention", "predictions", "serve_uncalibrated")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MONITORING_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    SERVE_UNCALIBRATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    classes: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    created_at: _timestamp_pb2.Timestamp
    monitoring: MonitoringSettings
    warnings: _containers.RepeatedScalarFieldContainer[str]
    task: Task
    description: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    retention: RetentionSettings
    predictions: PredictionPolicy
    serve_uncalibrated: bool
    def __init__(self, name: _Optional[str] = ..., classes: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., monitoring: _Optional[_Union[MonitoringSettings, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., task: _Optional[_Union[Task, str]] = ..., description: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., retention: _Optional[_Union[RetentionSettings, _Mapping]] = ..., predictions: _Optional[_Union[PredictionPolicy, str]] = ..., serve_uncalibrated: _Optional[bool] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, items: _Optional[_Iterable[str]] = ...) -> None: ...

class RetentionSettings(_message.Message):
    __slots__ = ("dataset_seconds", "version_seconds", "label_seconds")
    DATASET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LABEL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    dataset_seconds: float
    version_seconds: float
    label_seconds: float
    def __init__(self, dataset_seconds: _Optional[float] = ..., version_seconds: _Optional[float] = ..., label_seconds: _Optional[float] = ...) -> None: ...

class UpdateModelRequest(_message.Message):
    __slots__ = ("model", "name", "description", "tags", "retention", "predictions", "serve_uncalibrated")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    SERVE_UNCALIBRATED_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    description: str
    tags: Tags
    retention: RetentionSettings
    predictions: PredictionPolicy
    serve_uncalibrated: bool
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., retention: _Optional[_Union[RetentionSettings, _Mapping]] = ..., predictions: _Optional[_Union[PredictionPolicy, str]] = ..., serve_uncalibrated: _Optional[bool] = ...) -> None: ...

class UpdateDatasetRequest(_message.Message):
    __slots__ = ("model", "name", "description", "tags")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    description: str
    tags: Tags
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ...) -> None: ...

class UpdateCalibratorRequest(_message.Message):
    __slots__ = ("model", "version", "description", "tags")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    description: str
    tags: Tags
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., description: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ...) -> None: ...

class DeleteModelRequest(_message.Message):
    __slots__ = ("model", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class Deletion(_message.Message):
    __slots__ = ("deleted_at", "erased_after")
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    ERASED_AFTER_FIELD_NUMBER: _ClassVar[int]
    deleted_at: _timestamp_pb2.Timestamp
    erased_after: _timestamp_pb2.Timestamp
    def __init__(self, deleted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., erased_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ModelPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Model]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("model", "name", "content_type", "input", "uri", "digest")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    content_type: str
    input: Input
    uri: str
    digest: str
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ..., content_type: _Optional[str] = ..., input: _Optional[_Union[Input, str]] = ..., uri: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class UploadDatasetRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class UploadDatasetResponse(_message.Message):
    __slots__ = ("dataset", "created")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    dataset: Dataset
    created: bool
    def __init__(self, dataset: _Optional[_Union[Dataset, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class GetDatasetRequest(_message.Message):
    __slots__ = ("model", "name")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteDatasetRequest(_message.Message):
    __slots__ = ("model", "name", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class ListDatasetsRequest(_message.Message):
    __slots__ = ("model", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("value", "low", "high", "floor")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    value: float
    low: float
    high: float
    floor: float
    def __init__(self, value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., floor: _Optional[float] = ...) -> None: ...

class Dataset(_message.Message):
    __slots__ = ("name", "model", "rows", "classes", "digest", "size_bytes", "input", "metrics", "created_at", "media_type", "description", "tags", "uri", "warnings")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Estimate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    rows: int
    classes: int
    digest: str
    size_bytes: int
    input: Input
    metrics: _containers.MessageMap[str, Estimate]
    created_at: _timestamp_pb2.Timestamp
    media_type: str
    description: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    uri: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., rows: _Optional[int] = ..., classes: _Optional[int] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., input: _Optional[_Union[Input, str]] = ..., metrics: _Optional[_Mapping[str, Estimate]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., media_type: _Optional[str] = ..., description: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., uri: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DatasetPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Dataset]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Dataset, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class CreateCalibratorRequest(_message.Message):
    __slots__ = ("model", "dataset", "map", "objective", "options", "promote", "parameters", "row_digests", "force", "sets", "coverage", "sets_by", "sets_folds", "sets_penalty", "sets_k_reg", "resampled", "max_risk")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    SETS_BY_FIELD_NUMBER: _ClassVar[int]
    SETS_FOLDS_FIELD_NUMBER: _ClassVar[int]
    SETS_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SETS_K_REG_FIELD_NUMBER: _ClassVar[int]
    RESAMPLED_FIELD_NUMBER: _ClassVar[int]
    MAX_RISK_FIELD_NUMBER: _ClassVar[int]
    model: str
    dataset: str
    map: str
    objective: str
    options: _struct_pb2.Struct
    promote: Promote
    parameters: bytes
    row_digests: bytes
    force: bool
    sets: str
    coverage: float
    sets_by: str
    sets_folds: int
    sets_penalty: float
    sets_k_reg: int
    resampled: _struct_pb2.Struct
    max_risk: float
    def __init__(self, model: _Optional[str] = ..., dataset: _Optional[str] = ..., map: _Optional[str] = ..., objective: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., promote: _Optional[_Union[Promote, str]] = ..., parameters: _Optional[bytes] = ..., row_digests: _Optional[bytes] = ..., force: _Optional[bool] = ..., sets: _Optional[str] = ..., coverage: _Optional[float] = ..., sets_by: _Optional[str] = ..., sets_folds: _Optional[int] = ..., sets_penalty: _Optional[float] = ..., sets_k_reg: _Optional[int] = ..., resampled: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., max_risk: _Optional[float] = ...) -> None: ...

class GetCalibratorRequest(_message.Message):
    __slots__ = ("model", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteCalibratorRequest(_message.Message):
    __slots__ = ("model", "version", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    force: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., force: _Optional[bool] = ...) -> None: ...

class ListCalibratorsRequest(_message.Message):
    __slots__ = ("model", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Calibrator(_message.Message):
    __slots__ = ("model", "version", "dataset", "job", "created_at", "card", "description", "tags")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    dataset: str
    job: str
    created_at: _timestamp_pb2.Timestamp
    card: _struct_pb2.Struct
    description: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., dataset: _Optional[str] = ..., job: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., card: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., description: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class CalibratorPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Calibrator]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Calibrator, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class CreateEvaluationRequest(_message.Message):
    __slots__ = ("model", "dataset", "versions", "baseline", "segments")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    dataset: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    baseline: str
    segments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., dataset: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., baseline: _Optional[str] = ..., segments: _Optional[_Iterable[str]] = ...) -> None: ...

class GetEvaluationRequest(_message.Message):
    __slots__ = ("model", "id")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    id: str
    def __init__(self, model: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class DeleteEvaluationRequest(_message.Message):
    __slots__ = ("model", "id", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    id: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class ListEvaluationsRequest(_message.Message):
    __slots__ = ("model", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("value", "low", "high", "verdict")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    value: float
    low: float
    high: float
    verdict: str
    def __init__(self, value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., verdict: _Optional[str] = ...) -> None: ...

class LabelResult(_message.Message):
    __slots__ = ("label", "metrics", "changes")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Estimate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...
    class ChangesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Change
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Change, _Mapping]] = ...) -> None: ...
    LABEL_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    label: str
    metrics: _containers.MessageMap[str, Estimate]
    changes: _containers.MessageMap[str, Change]
    def __init__(self, label: _Optional[str] = ..., metrics: _Optional[_Mapping[str, Estimate]] = ..., changes: _Optional[_Mapping[str, Change]] = ...) -> None: ...

class SegmentResult(_message.Message):
    __slots__ = ("segment", "rows", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Estimate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    segment: str
    rows: int
    metrics: _containers.MessageMap[str, Estimate]
    def __init__(self, segment: _Optional[str] = ..., rows: _Optional[int] = ..., metrics: _Optional[_Mapping[str, Estimate]] = ...) -> None: ...

class VersionResult(_message.Message):
    __slots__ = ("version", "fitted_rows", "metrics", "changes", "labels", "segments")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Estimate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...
    class ChangesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Change
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Change, _Mapping]] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FITTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    fitted_rows: int
    metrics: _containers.MessageMap[str, Estimate]
    changes: _containers.MessageMap[str, Change]
    labels: _containers.RepeatedCompositeFieldContainer[LabelResult]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentResult]
    def __init__(self, version: _Optional[str] = ..., fitted_rows: _Optional[int] = ..., metrics: _Optional[_Mapping[str, Estimate]] = ..., changes: _Optional[_Mapping[str, Change]] = ..., labels: _Optional[_Iterable[_Union[LabelResult, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[SegmentResult, _Mapping]]] = ...) -> None: ...

class EvaluationPicture(_message.Message):
    __slots__ = ("title", "caption", "versions", "specification")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    CAPTION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    SPECIFICATION_FIELD_NUMBER: _ClassVar[int]
    title: str
    caption: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    specification: _struct_pb2.Struct
    def __init__(self, title: _Optional[str] = ..., caption: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., specification: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("id", "model", "dataset", "versions", "state", "progress", "error", "rows", "results", "warnings", "pictures", "created_at", "finished_at", "segments")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    dataset: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    state: JobState
    progress: Progress
    error: str
    rows: int
    results: _containers.RepeatedCompositeFieldContainer[VersionResult]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    pictures: _containers.RepeatedCompositeFieldContainer[EvaluationPicture]
    created_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    segments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., dataset: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[JobState, str]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., error: _Optional[str] = ..., rows: _Optional[int] = ..., results: _Optional[_Iterable[_Union[VersionResult, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., pictures: _Optional[_Iterable[_Union[EvaluationPicture, _Mapping]]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., segments: _Optional[_Iterable[str]] = ...) -> None: ...

class EvaluationPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Evaluation]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class BatchHeader(_message.Message):
    __slots__ = ("model", "version", "format", "dataset", "content_type", "input", "sets", "accepted")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    format: BatchFormat
    dataset: str
    content_type: str
    input: Input
    sets: bool
    accepted: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., format: _Optional[_Union[BatchFormat, str]] = ..., dataset: _Optional[str] = ..., content_type: _Optional[str] = ..., input: _Optional[_Union[Input, str]] = ..., sets: _Optional[bool] = ..., accepted: _Optional[bool] = ...) -> None: ...

class CreateBatchRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: BatchHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[BatchHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class GetBatchRequest(_message.Message):
    __slots__ = ("model", "id")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    id: str
    def __init__(self, model: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class DeleteBatchRequest(_message.Message):
    __slots__ = ("model", "id", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    id: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class ListBatchesRequest(_message.Message):
    __slots__ = ("model", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("id", "model", "version", "dataset", "input", "format", "rows", "state", "progress", "error", "digest", "size_bytes", "created_at", "finished_at", "uncalibrated", "sets", "accepted")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    UNCALIBRATED_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    version: int
    dataset: str
    input: Input
    format: BatchFormat
    rows: int
    state: JobState
    progress: Progress
    error: str
    digest: str
    size_bytes: int
    created_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    uncalibrated: bool
    sets: bool
    accepted: bool
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., dataset: _Optional[str] = ..., input: _Optional[_Union[Input, str]] = ..., format: _Optional[_Union[BatchFormat, str]] = ..., rows: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., error: _Optional[str] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uncalibrated: _Optional[bool] = ..., sets: _Optional[bool] = ..., accepted: _Optional[bool] = ...) -> None: ...

class BatchPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Batch]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class CreateTrainingRunRequest(_message.Message):
    __slots__ = ("recipe",)
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    recipe: _struct_pb2.Struct
    def __init__(self, recipe: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class GetTrainingRunFileRequest(_message.Message):
    __slots__ = ("id", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteTrainingRunRequest(_message.Message):
    __slots__ = ("id", "force")
    ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    force: bool
    def __init__(self, id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class SetAliasRequest(_message.Message):
    __slots__ = ("model", "alias", "version", "reason", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    alias: str
    version: int
    reason: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., alias: _Optional[str] = ..., version: _Optional[int] = ..., reason: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class Alias(_message.Message):
    __slots__ = ("alias", "model", "version", "updated_at", "warnings")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    alias: str
    model: str
    version: int
    updated_at: _timestamp_pb2.Timestamp
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, alias: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListAliasesRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class DeleteAliasRequest(_message.Message):
    __slots__ = ("model", "alias", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    alias: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., alias: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class AliasList(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Alias]
    def __init__(self, items: _Optional[_Iterable[_Union[Alias, _Mapping]]] = ...) -> None: ...

class GetAliasHistoryRequest(_message.Message):
    __slots__ = ("model", "alias", "limit")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    model: str
    alias: str
    limit: int
    def __init__(self, model: _Optional[str] = ..., alias: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class AliasChange(_message.Message):
    __slots__ = ("at", "actor", "from_version", "to_version", "reason")
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    actor: str
    from_version: int
    to_version: int
    reason: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ..., from_version: _Optional[int] = ..., to_version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AliasHistory(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AliasChange]
    def __init__(self, items: _Optional[_Iterable[_Union[AliasChange, _Mapping]]] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("actor", "action", "model", "limit", "cursor")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    actor: str
    action: str
    model: str
    limit: int
    cursor: str
    def __init__(self, actor: _Optional[str] = ..., action: _Optional[str] = ..., model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("id", "at", "actor", "action", "model", "target", "detail", "result")
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    id: int
    at: _timestamp_pb2.Timestamp
    actor: str
    action: str
    model: str
    target: str
    detail: str
    result: str
    def __init__(self, id: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., model: _Optional[str] = ..., target: _Optional[str] = ..., detail: _Optional[str] = ..., result: _Optional[str] = ...) -> None: ...

class AuditPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("models", "types", "after", "order", "limit", "cursor")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    after: int
    order: EventOrder
    limit: int
    cursor: str
    def __init__(self, models: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ..., after: _Optional[int] = ..., order: _Optional[_Union[EventOrder, str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListModelEventsRequest(_message.Message):
    __slots__ = ("model", "types", "after", "order", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    types: _containers.RepeatedScalarFieldContainer[str]
    after: int
    order: EventOrder
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., after: _Optional[int] = ..., order: _Optional[_Union[EventOrder, str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class StreamEventsRequest(_message.Message):
    __slots__ = ("models", "types", "after")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    after: int
    def __init__(self, models: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ..., after: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "at", "type", "model", "data")
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: int
    at: _timestamp_pb2.Timestamp
    type: str
    model: str
    data: _struct_pb2.Struct
    def __init__(self, id: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., type: _Optional[str] = ..., model: _Optional[str] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class EventPage(_message.Message):
    __slots__ = ("items", "next_cursor", "gap")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Event]
    next_cursor: str
    gap: Event
    def __init__(self, items: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next_cursor: _Optional[str] = ..., gap: _Optional[_Union[Event, _Mapping]] = ...) -> None: ...

class CreateWebhookRequest(_message.Message):
    __slots__ = ("url", "model", "types", "format")
    URL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    url: str
    model: str
    types: _containers.RepeatedScalarFieldContainer[str]
    format: WebhookFormat
    def __init__(self, url: _Optional[str] = ..., model: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., format: _Optional[_Union[WebhookFormat, str]] = ...) -> None: ...

class ListWebhooksRequest(_message.Message):
    __slots__ = ("model", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetWebhookRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class UpdateWebhookRequest(_message.Message):
    __slots__ = ("id", "url", "enabled")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    id: str
    url: str
    enabled: bool
    def __init__(self, id: _Optional[str] = ..., url: _Optional[str] = ..., enabled: _Optional[bool] = ...) -> None: ...

class RotateWebhookSecretRequest(_message.Message):
    __slots__ = ("id", "overlap_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    overlap_seconds: float
    def __init__(self, id: _Optional[str] = ..., overlap_seconds: _Optional[float] = ...) -> None: ...

class DeleteWebhookRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListDeliveriesRequest(_message.Message):
    __slots__ = ("id", "state", "limit", "cursor")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: DeliveryState
    limit: int
    cursor: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[DeliveryState, str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class RedeliverRequest(_message.Message):
    __slots__ = ("id", "event_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    event_id: int
    def __init__(self, id: _Optional[str] = ..., event_id: _Optional[int] = ...) -> None: ...

class Webhook(_message.Message):
    __slots__ = ("id", "url", "model", "types", "format", "enabled", "reason", "created_by", "created_at", "secret", "previous_secrets_until")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SECRETS_UNTIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    url: str
    model: str
    types: _containers.RepeatedScalarFieldContainer[str]
    format: WebhookFormat
    enabled: bool
    reason: str
    created_by: str
    created_at: _timestamp_pb2.Timestamp
    secret: str
    previous_secrets_until: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., url: _Optional[str] = ..., model: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., format: _Optional[_Union[WebhookFormat, str]] = ..., enabled: _Optional[bool] = ..., reason: _Optional[str] = ..., created_by: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., secret: _Optional[str] = ..., previous_secrets_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WebhookPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Webhook]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Webhook, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("event_id", "type", "state", "attempts", "created_at", "attempted_at", "next_attempt_at", "status", "error")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    type: str
    state: DeliveryState
    attempts: int
    created_at: _timestamp_pb2.Timestamp
    attempted_at: _timestamp_pb2.Timestamp
    next_attempt_at: _timestamp_pb2.Timestamp
    status: int
    error: str
    def __init__(self, event_id: _Optional[int] = ..., type: _Optional[str] = ..., state: _Optional[_Union[DeliveryState, str]] = ..., attempts: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class DeliveryPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Matrix(_message.Message):
    __slots__ = ("rows", "classes", "datatype", "raw", "values")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    classes: int
    datatype: Datatype
    raw: bytes
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, rows: _Optional[int] = ..., classes: _Optional[int] = ..., datatype: _Optional[_Union[Datatype, str]] = ..., raw: _Optional[bytes] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class CalibrateRequest(_message.Message):
    __slots__ = ("model", "calibrator", "input", "matrix", "ids", "top_k", "segment", "group", "sets", "intervals", "accepted")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALIBRATOR_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    MATRIX_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    model: str
    calibrator: str
    input: Input
    matrix: Matrix
    ids: float
    top_k: int
    segment: str
    group: str
    sets: bool
    intervals: bool
    accepted: bool
    def __init__(self, model: _Optional[str] = ..., calibrator: _Optional[str] = ..., input: _Optional[_Union[Input, str]] = ..., matrix: _Optional[_Union[Matrix, _Mapping]] = ..., ids: _Optional[float] = ..., top_k: _Optional[int] = ..., segment: _Optional[str] = ..., group: _Optional[str] = ..., sets: _Optional[bool] = ..., intervals: _Optional[bool] = ..., accepted: _Optional[bool] = ...) -> None: ...

class CalibrateResponse(_message.Message):
    __slots__ = ("probabilities", "calibrator", "prediction_ids", "top_k", "warnings", "sets", "intervals", "accepted")
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    CALIBRATOR_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    probabilities: Matrix
    calibrator: Calibrated
    prediction_ids: _containers.RepeatedScalarFieldContainer[str]
    top_k: Top
    warnings: _containers.RepeatedScalarFieldContainer[str]
    sets: _containers.RepeatedCompositeFieldContainer[ClassSet]
    intervals: Matrix
    accepted: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, probabilities: _Optional[_Union[Matrix, _Mapping]] = ..., calibrator: _Optional[_Union[Calibrated, _Mapping]] = ..., prediction_ids: _Optional[_Iterable[str]] = ..., top_k: _Optional[_Union[Top, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., sets: _Optional[_Iterable[_Union[ClassSet, _Mapping]]] = ..., intervals: _Optional[_Union[Matrix, _Mapping]] = ..., accepted: _Optional[_Iterable[bool]] = ...) -> None: ...

class ClassSet(_message.Message):
    __slots__ = ("classes",)
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, classes: _Optional[_Iterable[int]] = ...) -> None: ...

class Top(_message.Message):
    __slots__ = ("classes", "probabilities", "labels")
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[int]
    probabilities: Matrix
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, classes: _Optional[_Iterable[int]] = ..., probabilities: _Optional[_Union[Matrix, _Mapping]] = ..., labels: _Optional[_Iterable[str]] = ...) -> None: ...

class Calibrated(_message.Message):
    __slots__ = ("version", "map", "uncalibrated", "adaptation")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    UNCALIBRATED_FIELD_NUMBER: _ClassVar[int]
    ADAPTATION_FIELD_NUMBER: _ClassVar[int]
    version: int
    map: str
    uncalibrated: bool
    adaptation: int
    def __init__(self, version: _Optional[int] = ..., map: _Optional[str] = ..., uncalibrated: _Optional[bool] = ..., adaptation: _Optional[int] = ...) -> None: ...

class LateLabel(_message.Message):
    __slots__ = ("prediction_id", "index", "name", "set", "group")
    PREDICTION_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    prediction_id: str
    index: int
    name: str
    set: LabelSet
    group: str
    def __init__(self, prediction_id: _Optional[str] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., set: _Optional[_Union[LabelSet, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class LabelSet(_message.Message):
    __slots__ = ("indices", "names")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class AddLabelsRequest(_message.Message):
    __slots__ = ("model", "labels")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    model: str
    labels: _containers.RepeatedCompositeFieldContainer[LateLabel]
    def __init__(self, model: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[LateLabel, _Mapping]]] = ...) -> None: ...

class AddObservationsRequest(_message.Message):
    __slots__ = ("model", "calibrator", "logits", "labels", "label_names", "times", "segment", "counted", "label_sets", "groups")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALIBRATOR_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LABEL_NAMES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    LABEL_SETS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    model: str
    calibrator: str
    logits: Matrix
    labels: _containers.RepeatedScalarFieldContainer[int]
    label_names: _containers.RepeatedScalarFieldContainer[str]
    times: _containers.RepeatedScalarFieldContainer[float]
    segment: str
    counted: bool
    label_sets: _containers.RepeatedCompositeFieldContainer[LabelSet]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., calibrator: _Optional[str] = ..., logits: _Optional[_Union[Matrix, _Mapping]] = ..., labels: _Optional[_Iterable[int]] = ..., label_names: _Optional[_Iterable[str]] = ..., times: _Optional[_Iterable[float]] = ..., segment: _Optional[str] = ..., counted: _Optional[bool] = ..., label_sets: _Optional[_Iterable[_Union[LabelSet, _Mapping]]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class TrafficBucket(_message.Message):
    __slots__ = ("started_at", "predictions", "confidence_sums")
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_SUMS_FIELD_NUMBER: _ClassVar[int]
    started_at: float
    predictions: _containers.RepeatedScalarFieldContainer[int]
    confidence_sums: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, started_at: _Optional[float] = ..., predictions: _Optional[_Iterable[int]] = ..., confidence_sums: _Optional[_Iterable[float]] = ...) -> None: ...

class AddTrafficRequest(_message.Message):
    __slots__ = ("model", "calibrator", "buckets", "segment", "target")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALIBRATOR_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    model: str
    calibrator: str
    buckets: _containers.RepeatedCompositeFieldContainer[TrafficBucket]
    segment: str
    target: str
    def __init__(self, model: _Optional[str] = ..., calibrator: _Optional[str] = ..., buckets: _Optional[_Iterable[_Union[TrafficBucket, _Mapping]]] = ..., segment: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class AddTrafficResponse(_message.Message):
    __slots__ = ("accepted", "expired")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    expired: int
    def __init__(self, accepted: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class LabelOutcome(_message.Message):
    __slots__ = ("status", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: LabelStatus
    reason: str
    def __init__(self, status: _Optional[_Union[LabelStatus, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class LabelCounts(_message.Message):
    __slots__ = ("accepted", "duplicate", "conflict", "expired", "invalid")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    duplicate: int
    conflict: int
    expired: int
    invalid: int
    def __init__(self, accepted: _Optional[int] = ..., duplicate: _Optional[int] = ..., conflict: _Optional[int] = ..., expired: _Optional[int] = ..., invalid: _Optional[int] = ...) -> None: ...

class AddLabelsResponse(_message.Message):
    __slots__ = ("counts", "items", "warnings")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    counts: LabelCounts
    items: _containers.RepeatedCompositeFieldContainer[LabelOutcome]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, counts: _Optional[_Union[LabelCounts, _Mapping]] = ..., items: _Optional[_Iterable[_Union[LabelOutcome, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("model", "state", "limit", "cursor")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    model: str
    state: JobState
    limit: int
    cursor: str
    def __init__(self, model: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("fraction", "message")
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    fraction: float
    message: str
    def __init__(self, fraction: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "kind", "state", "model", "progress", "result", "error", "attempts", "created_at", "started_at", "finished_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    state: JobState
    model: str
    progress: Progress
    result: _struct_pb2.Struct
    error: str
    attempts: int
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., model: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., error: _Optional[str] = ..., attempts: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class JobPage(_message.Message):
    __slots__ = ("items", "next_cursor")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Job]
    next_cursor: str
    def __init__(self, items: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...
