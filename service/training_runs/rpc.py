"""Training runs over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from anyio import to_thread

from recalib.recipe import Recipe
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import struct_to_dict, to_message
from service.grpc.rpc import Context, idempotency_key
from service.state import State
from service.training_runs import handlers


class TrainingRuns:
    """`recalib.v1.TrainingRuns`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create_training_run(self, request: pb.CreateTrainingRunRequest, context: Context) -> pb.Job:
        """Request a training run."""
        recipe = Recipe.of(struct_to_dict(request.recipe))
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            job = handlers.create_training_run(tx, recipe, key, self._state.settings)
            return to_message(pb.Job, job)

    def delete_training_run(
        self, request: pb.DeleteTrainingRunRequest, context: Context
    ) -> pb.Deletion:
        """Delete a training run with its files."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_training_run(
                tx, request.id, force=request.force, key=key, deleted_seconds=seconds
            )
        return to_message(pb.Deletion, answer)

    async def get_training_run_file(
        self, request: pb.GetTrainingRunFileRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download a file that a run delivered."""
        pieces = await to_thread.run_sync(
            handlers.get_training_run_file, self._state.registry, request.id, request.name
        )
        while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
            yield pb.FileChunk(data=piece)
