"""Calibrators and aliases over gRPC."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio import to_thread

from recalib.registry import Registry
from service.access.authenticator import current_principal
from service.calibrators import handlers
from service.calibrators.schemas import AliasSet, CalibratorCreate
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import (
    checked_version,
    details_of,
    enum_value,
    page_limit,
    struct_to_dict,
    to_message,
)
from service.grpc.rpc import Context, idempotency_key
from service.schemas.details import DetailsUpdate
from service.state import State

_PROMOTE: dict[str, Any] = {"if_better": "if_better", "always": True, "never": False}
#: Bytes of one message of a download; by default, clients accept 4 MB.
_CHUNK = 2**20


class Calibrators:
    """`recalib.v1.Calibrators`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create_calibrator(self, request: pb.CreateCalibratorRequest, context: Context) -> pb.Job:
        """Enqueue a fit or a publication. Fields that are not set have the defaults of REST."""
        promote = enum_value("promote", pb.Promote.DESCRIPTOR, request.promote)
        fields = {
            "dataset": request.dataset,
            "map": request.map,
            "objective": request.objective,
            "options": struct_to_dict(request.options),
            "parameters": base64.b64encode(request.parameters),
            "row_digests": base64.b64encode(request.row_digests),
        }
        create = CalibratorCreate(
            **{name: value for name, value in fields.items() if value}, promote=_PROMOTE[promote]
        )
        key = idempotency_key(context)
        registry = self._state.registry
        return to_message(pb.Job, handlers.create_calibrator(registry, request.model, create, key))

    def get_calibrator(self, request: pb.GetCalibratorRequest, context: Context) -> pb.Calibrator:
        """Return a calibrator's card."""
        version = checked_version(request.version)
        with self._state.registry.reading() as tx:
            return to_message(pb.Calibrator, handlers.get_calibrator(tx, request.model, version))

    def list_calibrators(
        self, request: pb.ListCalibratorsRequest, context: Context
    ) -> pb.CalibratorPage:
        """List a model's calibrators by version."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            page = handlers.list_calibrators(tx, request.model, limit, request.cursor or None)
        return to_message(pb.CalibratorPage, page)

    async def get_calibrator_parameters(
        self, request: pb.GetCalibratorRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download the parameter file."""
        async for chunk in self._download(handlers.get_parameters, request):
            yield chunk

    async def get_calibrator_onnx(
        self, request: pb.GetCalibratorRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download the map as an ONNX graph."""
        async for chunk in self._download(handlers.get_onnx, request):
            yield chunk

    async def set_alias(self, request: pb.SetAliasRequest, context: Context) -> pb.Alias:
        """Point an alias at a version: promote or roll back."""
        change = AliasSet(version=request.version, reason=request.reason)
        state, alias, key = self._state, request.alias, idempotency_key(context)
        return to_message(
            pb.Alias,
            await handlers.set_alias(
                state.registry,
                state.calibrators,
                request.model,
                alias,
                change,
                current_principal().name,
                key,
            ),
        )

    def list_aliases(self, request: pb.ListAliasesRequest, context: Context) -> pb.AliasList:
        """List a model's aliases."""
        with self._state.registry.reading() as tx:
            return to_message(pb.AliasList, handlers.list_aliases(tx, request.model))

    def update_calibrator(
        self, request: pb.UpdateCalibratorRequest, context: Context
    ) -> pb.Calibrator:
        """Change the description or the tags of a version."""
        change, key = DetailsUpdate.model_validate(details_of(request)), idempotency_key(context)
        version = checked_version(request.version)
        with self._state.registry.transaction() as tx:
            answer = handlers.update_calibrator(tx, request.model, version, change, key)
        return to_message(pb.Calibrator, answer)

    def delete_calibrator(
        self, request: pb.DeleteCalibratorRequest, context: Context
    ) -> pb.Deletion:
        """Delete a version that no alias points at."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        version = checked_version(request.version)
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_calibrator(
                tx, request.model, version, force=request.force, key=key, deleted_seconds=seconds
            )
        self._state.calibrators.refresh()
        return to_message(pb.Deletion, answer)

    def delete_alias(self, request: pb.DeleteAliasRequest, context: Context) -> pb.Deletion:
        """Delete an alias; the champion only with `force`."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_alias(
                tx, request.model, request.alias, force=request.force, key=key
            )
        self._state.calibrators.refresh()
        return to_message(pb.Deletion, answer)

    def get_alias_history(
        self, request: pb.GetAliasHistoryRequest, context: Context
    ) -> pb.AliasHistory:
        """Return the changes of an alias, newest first."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            history = handlers.get_alias_history(tx, request.model, request.alias, limit)
        return to_message(pb.AliasHistory, history)

    async def _download(
        self, file: Callable[[Registry, str, int], bytes], request: pb.GetCalibratorRequest
    ) -> AsyncIterator[pb.FileChunk]:
        version = checked_version(request.version)
        data = await to_thread.run_sync(file, self._state.registry, request.model, version)
        for start in range(0, len(data), _CHUNK):
            yield pb.FileChunk(data=data[start : start + _CHUNK])
