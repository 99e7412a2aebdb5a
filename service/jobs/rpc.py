"""Jobs over gRPC."""

from __future__ import annotations

from typing import cast

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value, page_limit, to_message
from service.grpc.rpc import Context, idempotency_key
from service.jobs import handlers
from service.schemas.job import JobState
from service.state import State


class Jobs:
    """`recalib.v1.Jobs`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get_job(self, request: pb.GetJobRequest, context: Context) -> pb.Job:
        """Return a job's state, progress and result."""
        with self._state.registry.reading() as tx:
            return to_message(pb.Job, handlers.get_job(tx, request.id))

    def list_jobs(self, request: pb.ListJobsRequest, context: Context) -> pb.JobPage:
        """List jobs, newest first."""
        limit = page_limit(request.limit)
        state = enum_value("state", pb.JobState.DESCRIPTOR, request.state)
        job_state = None if state == "unspecified" else cast("JobState", state)
        with self._state.registry.reading() as tx:
            page = handlers.list_jobs(
                tx, request.model or None, job_state, limit, request.cursor or None
            )
        return to_message(pb.JobPage, page)

    def cancel_job(self, request: pb.CancelJobRequest, context: Context) -> pb.Job:
        """Cancel a job."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Job, handlers.cancel_job(tx, request.id, key))
