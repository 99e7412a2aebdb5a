"""Signatures of webhook messages, by the specification Standard Webhooks 1.0.

The signature is HMAC-SHA256 of `id.timestamp.body` in base64, in the header `webhook-signature`. A
receiver compares the timestamp with its clock, and recognises a repeated message by its id.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["encode_secret", "signature_headers"]


def encode_secret(secret: bytes) -> str:
    """Return a secret as the receiver gets it."""
    return "whsec_" + base64.b64encode(secret).decode()


def signature_headers(secret: bytes, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that identify and sign a message.

    Parameters
    ----------
    id: of the message, the same in every attempt; without a dot.
    timestamp: of the attempt, in seconds since 1970.
    """
    signed = f"{id}.{timestamp}.".encode() + body
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
