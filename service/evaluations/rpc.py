"""Evaluations over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from anyio import to_thread

from service.evaluations import handlers
from service.evaluations.schemas import EvaluationCreate
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import page_limit, to_message
from service.grpc.rpc import Context, idempotency_key
from service.state import State

#: Bytes of one message of a download; by default, clients accept 4 MB.
_CHUNK = 2**20


class Evaluations:
    """`recalib.v1.Evaluations`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create_evaluation(self, request: pb.CreateEvaluationRequest, context: Context) -> pb.Job:
        """Enqueue an evaluation."""
        create = EvaluationCreate(
            dataset=request.dataset,
            versions=list(request.versions),
            baseline=request.baseline or None,
        )
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Job, handlers.create_evaluation(tx, request.model, create, key))

    def get_evaluation(self, request: pb.GetEvaluationRequest, context: Context) -> pb.Evaluation:
        """Return the state of an evaluation, its results and its pictures."""
        evaluation = handlers.get_evaluation(self._state.registry, request.model, request.id)
        return to_message(pb.Evaluation, evaluation)

    def list_evaluations(
        self, request: pb.ListEvaluationsRequest, context: Context
    ) -> pb.EvaluationPage:
        """List a model's evaluations, newest first."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            page = handlers.list_evaluations(tx, request.model, limit, request.cursor or None)
        return to_message(pb.EvaluationPage, page)

    def delete_evaluation(
        self, request: pb.DeleteEvaluationRequest, context: Context
    ) -> pb.Deletion:
        """Delete an evaluation with its page."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_evaluation(
                tx, request.model, request.id, force=request.force, key=key, deleted_seconds=seconds
            )
        return to_message(pb.Deletion, answer)

    async def get_evaluation_report(
        self, request: pb.GetEvaluationRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download the page of an evaluation, HTML in UTF-8."""
        page = await to_thread.run_sync(
            handlers.get_evaluation_report, self._state.registry, request.model, request.id
        )
        content = page.encode()
        for start in range(0, len(content), _CHUNK):
            yield pb.FileChunk(data=content[start : start + _CHUNK])
