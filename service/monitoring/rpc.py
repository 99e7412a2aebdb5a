"""Monitoring over gRPC."""

from __future__ import annotations

from service.access.authenticator import current_principal
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value, to_message
from service.grpc.rpc import Context, idempotency_key
from service.monitoring import handlers
from service.monitoring.schemas import CandidateDrop, MonitoringSettings
from service.state import State

__all__ = ["Monitoring", "settings_of"]


class Monitoring:
    """`recalib.v1.Monitoring`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get_monitoring(
        self, request: pb.GetMonitoringRequest, context: Context
    ) -> pb.MonitoringReport:
        """Say how a model's champion holds up."""
        with self._state.registry.reading() as tx:
            return to_message(pb.MonitoringReport, handlers.get_monitoring(tx, request.model))

    def create_refit(self, request: pb.CreateRefitRequest, context: Context) -> pb.Job:
        """Ask for a candidate, fitted on kept logits."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Job, handlers.create_refit(tx, request.model, key))

    def drop_candidate(
        self, request: pb.DropCandidateRequest, context: Context
    ) -> pb.CandidateReport:
        """Give a candidate up; the champion goes on."""
        key = idempotency_key(context)
        drop = CandidateDrop(version=request.version, reason=request.reason)
        with self._state.registry.transaction() as tx:
            return to_message(
                pb.CandidateReport,
                handlers.drop_candidate(tx, request.model, drop, current_principal().name, key),
            )

    def set_monitoring(self, request: pb.SetMonitoringRequest, context: Context) -> pb.Model:
        """Say what of a model is watched, and how, from now on."""
        settings, key = settings_of(request.settings), idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Model, handlers.set_monitoring(tx, request.model, settings, key))


def settings_of(given: pb.MonitoringSettings) -> MonitoringSettings:
    """Return the form of a message; what is not set there has its default."""
    numbers = {
        field.name: value
        for field, value in given.ListFields()
        if field.name not in ("refit", "promote", "segments")
    }
    policies = {
        "refit": enum_value("settings.refit", pb.Refit.DESCRIPTOR, given.refit),
        "promote": enum_value("settings.promote", pb.PromoteCandidate.DESCRIPTOR, given.promote),
    }
    said = {**numbers, **policies, "segments": list(given.segments)}
    return MonitoringSettings.model_validate(said)
