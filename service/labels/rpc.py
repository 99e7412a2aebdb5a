"""Late labels over gRPC."""

from __future__ import annotations

from anyio import to_thread

from recalib.contract.labels import LabelOutcome
from recalib.errors import InputError
from service.access.authenticator import current_principal
from service.calibration import get_or_load
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.matrices import array_of
from service.grpc.rpc import Context
from service.labels.handlers import add_labels, counts_of
from service.labels.observations import add_observations
from service.labels.schemas import LateLabel, RowLabel
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State


class Labels:
    """The RPCs of `recalib.v1.Labels` that are no plain operations."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add_labels(self, request: pb.AddLabelsRequest, context: Context) -> pb.AddLabelsResponse:
        """Add the true classes of predictions, by the ids in the responses of calibrate."""
        settings = self._state.settings
        outcomes = add_labels(
            self._state.registry,
            request.model,
            [_label(number, label) for number, label in enumerate(request.labels)],
            max_labels=settings.max_labels,
            lifetime_seconds=settings.label_lifetime_seconds,
        )
        return _answer(outcomes)

    async def add_observations(
        self, request: pb.AddObservationsRequest, context: Context
    ) -> pb.AddLabelsResponse:
        """Add predictions that another program made with a calibrator, and their classes."""
        selector = request.calibrator or CHAMPION
        loaded = await get_or_load(self._state.calibrators, request.model, selector)
        return await to_thread.run_sync(_add_observations, self._state, loaded, request)


def _answer(outcomes: list[LabelOutcome]) -> pb.AddLabelsResponse:
    items = [
        pb.LabelOutcome(
            status=f"LABEL_STATUS_{outcome.status.upper()}", reason=outcome.reason or ""
        )
        for outcome in outcomes
    ]
    counts = counts_of(outcomes)
    return pb.AddLabelsResponse(counts=pb.LabelCounts(**counts), items=items)


def _add_observations(
    state: State, loaded: LoadedCalibrator, request: pb.AddObservationsRequest
) -> pb.AddLabelsResponse:
    fields = request.labels, request.label_names, request.label_sets
    if sum(map(bool, fields)) > 1:
        accepted = "one of labels, label_names and label_sets"
        raise InputError("labels", found="several of them", accepted=accepted)
    sets = list(map(_labels_of, request.label_sets))
    logits = array_of(request.logits)
    state.access.limiter.take_rows(current_principal(), len(logits))
    outcomes = add_observations(
        state.registry,
        state.calibrators.traffic,
        loaded,
        logits,
        [*request.labels, *request.label_names, *sets],
        request.times,
        request.segment,
        counted=request.counted,
        max_rows=state.settings.max_labels,
    )
    return _answer(outcomes)


def _label(number: int, message: pb.LateLabel) -> LateLabel:
    kind = message.WhichOneof("label")
    if kind is None:
        accepted = "index or name; of a multilabel model a set"
        raise InputError(f"labels[{number}].label", found="nothing", accepted=accepted)
    label = _labels_of(message.set) if kind == "set" else getattr(message, kind)
    return LateLabel(message.prediction_id, label)


def _labels_of(message: pb.LabelSet) -> RowLabel:
    return [*message.indices, *message.names]
