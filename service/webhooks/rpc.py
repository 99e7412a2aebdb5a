"""Webhooks over gRPC."""

from __future__ import annotations

from typing import cast

from recalib.registry import DeliveryState
from recalib.webhooks import Format
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value, page_limit, to_message
from service.grpc.rpc import Context, idempotency_key
from service.state import State
from service.webhooks import handlers
from service.webhooks.schemas import SecretRotation, WebhookChange, WebhookCreate


class Webhooks:
    """`recalib.v1.Webhooks`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create_webhook(self, request: pb.CreateWebhookRequest, context: Context) -> pb.Webhook:
        """Send events to a URL from now on."""
        format_ = cast("Format", enum_value("format", pb.WebhookFormat.DESCRIPTOR, request.format))
        create = WebhookCreate(
            url=request.url,
            model=request.model or None,
            types=list(request.types),
            format=format_,
        )
        key, settings = idempotency_key(context), self._state.settings
        with self._state.registry.transaction() as tx:
            return to_message(pb.Webhook, handlers.create_webhook(tx, settings, create, key))

    def list_webhooks(self, request: pb.ListWebhooksRequest, context: Context) -> pb.WebhookPage:
        """List webhooks."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            page = handlers.list_webhooks(tx, request.model or None, limit, request.cursor or None)
        return to_message(pb.WebhookPage, page)

    def get_webhook(self, request: pb.GetWebhookRequest, context: Context) -> pb.Webhook:
        """Return a webhook."""
        with self._state.registry.reading() as tx:
            return to_message(pb.Webhook, handlers.get_webhook(tx, request.id))

    def update_webhook(self, request: pb.UpdateWebhookRequest, context: Context) -> pb.Webhook:
        """Change the URL, or enable or disable a webhook."""
        change = WebhookChange(
            url=request.url if request.HasField("url") else None,
            enabled=request.enabled if request.HasField("enabled") else None,
        )
        key, settings = idempotency_key(context), self._state.settings
        with self._state.registry.transaction() as tx:
            webhook = handlers.update_webhook(tx, settings, request.id, change, key)
        return to_message(pb.Webhook, webhook)

    def rotate_webhook_secret(
        self, request: pb.RotateWebhookSecretRequest, context: Context
    ) -> pb.Webhook:
        """Replace the secret."""
        key, rotation = idempotency_key(context), SecretRotation()
        if request.HasField("overlap_seconds"):
            rotation = SecretRotation(overlap_seconds=request.overlap_seconds)
        with self._state.registry.transaction() as tx:
            webhook = handlers.rotate_webhook_secret(tx, request.id, rotation, key)
        return to_message(pb.Webhook, webhook)

    def delete_webhook(self, request: pb.DeleteWebhookRequest, context: Context) -> pb.Webhook:
        """Remove a webhook and its delivery log."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Webhook, handlers.delete_webhook(tx, request.id, key))

    def list_deliveries(
        self, request: pb.ListDeliveriesRequest, context: Context
    ) -> pb.DeliveryPage:
        """List what a webhook was sent."""
        limit = page_limit(request.limit)
        state = enum_value("state", pb.DeliveryState.DESCRIPTOR, request.state)
        selected = None if state == "unspecified" else cast("DeliveryState", state)
        with self._state.registry.reading() as tx:
            page = handlers.list_deliveries(tx, request.id, selected, limit, request.cursor or None)
        return to_message(pb.DeliveryPage, page)

    def redeliver(self, request: pb.RedeliverRequest, context: Context) -> pb.Webhook:
        """Send an event to a webhook again."""
        key = idempotency_key(context)
        with self._state.registry.transaction() as tx:
            return to_message(pb.Webhook, handlers.redeliver(tx, request.id, request.event_id, key))
