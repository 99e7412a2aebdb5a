"""Monitoring over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from recalib.errors import InputError
from service.access.authenticator import current_principal
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import page_limit, settings_of, to_message, upload_chunks
from service.grpc.rpc import Context, idempotency_key
from service.monitoring import handlers
from service.monitoring.replays import upload_replay
from service.monitoring.schemas import CandidateDrop
from service.state import State


class Monitoring:
    """`recalib.v1.Monitoring`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get_monitoring(
        self, request: pb.GetMonitoringRequest, context: Context
    ) -> pb.MonitoringReport:
        """Return the calibration state of a model's champion."""
        with self._state.registry.reading() as tx:
            return to_message(pb.MonitoringReport, handlers.get_monitoring(tx, request.model))

    def list_monitoring_history(
        self, request: pb.ListMonitoringHistoryRequest, context: Context
    ) -> pb.MonitoringHistory:
        """Return a page of the states after each cohort of predictions."""
        limit, version = page_limit(request.limit), request.version or None
        with self._state.registry.reading() as tx:
            page = handlers.get_history(tx, request.model, version, limit, request.cursor or None)
        return to_message(pb.MonitoringHistory, page)

    def create_refit(self, request: pb.CreateRefitRequest, context: Context) -> pb.Job:
        """Enqueue a fit of a candidate on captured logits."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Job, handlers.create_refit(tx, request.model, key))

    async def create_replay(
        self, requests: AsyncIterator[pb.CreateReplayRequest], context: Context
    ) -> pb.Job:
        """Load the log of the chunks that follow the header into the monitoring of a version."""
        first = await anext(requests, pb.CreateReplayRequest())
        if first.WhichOneof("part") != "header":
            found = "no header in the first message"
            raise InputError("header", found=found, accepted="a header, then chunks")
        header = first.header
        job = await upload_replay(
            self._state.registry,
            header.model,
            header.version or "champion",
            header.to_now,
            upload_chunks(requests, self._state.settings.max_upload_bytes),
            idempotency_key(context),
        )
        return to_message(pb.Job, job)

    def drop_candidate(
        self, request: pb.DropCandidateRequest, context: Context
    ) -> pb.CandidateReport:
        """Drop a candidate; the champion continues to serve."""
        key = idempotency_key(context)
        drop = CandidateDrop(version=request.version, reason=request.reason)
        with self._state.registry.transaction() as tx:
            return to_message(
                pb.CandidateReport,
                handlers.drop_candidate(tx, request.model, drop, current_principal().name, key),
            )

    def set_monitoring(self, request: pb.SetMonitoringRequest, context: Context) -> pb.Model:
        """Replace the monitoring settings of a model."""
        settings, key = settings_of(request.settings), idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Model, handlers.set_monitoring(tx, request.model, settings, key))
