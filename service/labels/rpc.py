"""Late labels over gRPC."""

from __future__ import annotations

from recalib.errors import InputError
from service.labels.handlers import add_labels, counts_of
from service.labels.schemas import LateLabel
from service.state import State
from service.transport.generated.recalib.v1 import recalib_pb2 as pb
from service.transport.rpc import Context

__all__ = ["Labels"]


class Labels:
    """`recalib.v1.Labels`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add_labels(self, request: pb.AddLabelsRequest, context: Context) -> pb.AddLabelsResponse:
        """Say what the true class of predictions was, by the ids that calibrate answered with."""
        settings = self._state.settings
        outcomes = add_labels(
            self._state.registry,
            request.model,
            [_label(number, one) for number, one in enumerate(request.labels)],
            most=settings.max_labels,
            lifetime_seconds=settings.label_lifetime_seconds,
        )
        items = [
            pb.LabelOutcome(status=f"LABEL_STATUS_{one.status.upper()}", reason=one.reason or "")
            for one in outcomes
        ]
        counts = counts_of(outcomes)
        return pb.AddLabelsResponse(counts=pb.LabelCounts(**counts), items=items)


def _label(number: int, given: pb.LateLabel) -> LateLabel:
    kind = given.WhichOneof("label")
    if kind is None:
        raise InputError(f"labels[{number}].label", found="nothing", accepted="index or name")
    return LateLabel(given.prediction_id, given.index if kind == "index" else given.name)
