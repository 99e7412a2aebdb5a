"""Models over gRPC."""

from __future__ import annotations

from typing import cast

from recalib.core.card import PredictionPolicy
from recalib.errors import InputError
from recalib.registry import Task
from service.access.authenticator import current_principal
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import details_of, enum_value, page_limit, settings_of, to_message
from service.grpc.rpc import Context, idempotency_key
from service.models import handlers
from service.models.schemas import ModelCreate, ModelUpdate
from service.state import State


class Models:
    """`recalib.v1.Models`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create_model(self, request: pb.CreateModelRequest, context: Context) -> pb.Model:
        """Register a classifier."""
        size = request.WhichOneof("size")
        if size is None:
            raise InputError("size", found="nothing", accepted="classes or labels")
        classes = request.classes if size == "classes" else list(request.labels.labels)
        monitoring = settings_of(request.monitoring)
        task = cast("Task", enum_value("task", pb.Task.DESCRIPTOR, request.task))
        model = ModelCreate(
            name=request.name,
            classes=classes,
            monitoring=monitoring,
            task=task,
            predictions=_predictions(request),
        )
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(
                pb.Model, handlers.create_model(tx, model, key, current_principal().name)
            )

    def get_model(self, request: pb.GetModelRequest, context: Context) -> pb.Model:
        """Return one classifier."""
        with self._state.registry.reading() as tx:
            return to_message(pb.Model, handlers.get_model(tx, request.model))

    def update_model(self, request: pb.UpdateModelRequest, context: Context) -> pb.Model:
        """Change the name, description, tags or settings of a classifier."""
        fields = details_of(request)
        if request.HasField("name"):
            fields["name"] = request.name
        if request.HasField("retention"):
            seconds = request.retention.ListFields()
            fields["retention"] = {field.name: value for field, value in seconds}
        fields["predictions"] = _predictions(request)
        change, key = ModelUpdate.model_validate(fields), idempotency_key(context)
        with self._state.registry.transaction() as tx:
            answer = handlers.update_model(tx, request.model, change, key)
        if change.name is not None:
            self._state.calibrators.refresh()
        return to_message(pb.Model, answer)

    def delete_model(self, request: pb.DeleteModelRequest, context: Context) -> pb.Deletion:
        """Delete a classifier with everything in it."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_model(
                tx, request.model, force=request.force, key=key, deleted_seconds=seconds
            )
        self._state.calibrators.refresh()
        return to_message(pb.Deletion, answer)

    def list_models(self, request: pb.ListModelsRequest, context: Context) -> pb.ModelPage:
        """List classifiers by name."""
        limit = page_limit(request.limit)
        name, tag = request.name or None, request.tag or None
        state = None
        if request.HasField("state"):
            state = enum_value("state", pb.CalibrationState.DESCRIPTOR, request.state)
        with self._state.registry.reading() as tx:
            page = handlers.list_models(
                tx, limit, request.cursor or None, name=name, tag=tag, state=state
            )
        return to_message(pb.ModelPage, page)


def _predictions(
    request: pb.CreateModelRequest | pb.UpdateModelRequest,
) -> PredictionPolicy | None:
    """Return the policy of a request, or None if it has none."""
    if not request.HasField("predictions"):
        return None
    value = enum_value("predictions", pb.PredictionPolicy.DESCRIPTOR, request.predictions)
    return cast("PredictionPolicy", value)
