"""Late labels over gRPC."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread

from recalib.contract.labels import LabelOutcome
from recalib.errors import InputError
from service.calibration import get_version
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.matrices import array_of
from service.grpc.rpc import Context
from service.labels import handlers, observations
from service.labels.schemas import LateLabel, RowLabel
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State


def add_labels(
    state: State, request: pb.AddLabelsRequest, context: Context
) -> pb.AddLabelsResponse:
    """Add the true classes of predictions, by the ids in the responses of calibrate."""
    labels = [_label(number, label) for number, label in enumerate(request.labels)]
    return _answer(handlers.add_labels(state, request.model, labels))


async def add_observations(
    state: State, request: pb.AddObservationsRequest, context: Context
) -> pb.AddLabelsResponse:
    """Add predictions that another program made with a calibrator, and their classes."""
    selector = request.calibrator or CHAMPION
    loaded = await get_version(state.calibrators, request.model, selector)
    return await to_thread.run_sync(_add_observations, state, loaded, request)


def _answer(outcomes: list[LabelOutcome], warnings: Sequence[str] = ()) -> pb.AddLabelsResponse:
    items = [
        pb.LabelOutcome(
            status=f"LABEL_STATUS_{outcome.status.upper()}", reason=outcome.reason or ""
        )
        for outcome in outcomes
    ]
    counts = handlers.counts_of(outcomes)
    return pb.AddLabelsResponse(counts=pb.LabelCounts(**counts), items=items, warnings=warnings)


def _add_observations(
    state: State, loaded: LoadedCalibrator, request: pb.AddObservationsRequest
) -> pb.AddLabelsResponse:
    fields = request.labels, request.label_names, request.label_sets
    if sum(map(bool, fields)) > 1:
        accepted = "one of labels, label_names and label_sets"
        raise InputError("labels", found="several of them", accepted=accepted)
    sets = map(_labels_of, request.label_sets)
    labels = [*request.labels, *request.label_names, *sets]
    logits, segment = array_of(request.logits), request.segment
    rows = observations.ObservedRows(
        logits, labels, request.times, segment, request.counted, request.groups
    )
    return _answer(*observations.add_observations(state, loaded, rows))


def _label(number: int, message: pb.LateLabel) -> LateLabel:
    kind = message.WhichOneof("label")
    if kind is None:
        accepted = "index or name; of a multilabel model a set"
        raise InputError(f"labels[{number}].label", found="nothing", accepted=accepted)
    label = _labels_of(message.set) if kind == "set" else getattr(message, kind)
    return LateLabel(message.prediction_id, label, message.group)


def _labels_of(message: pb.LabelSet) -> RowLabel:
    return [*message.indices, *message.names]
