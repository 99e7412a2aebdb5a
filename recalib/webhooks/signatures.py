"""Signatures of webhook messages, by the specification Standard Webhooks 1.0.

The signature is HMAC-SHA256 of `id.timestamp.body` in base64, in the header `webhook-signature`.
While secrets change, this header has several signatures, separated by spaces. A receiver compares
the timestamp with its clock, and recognises a repeated message by its id.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence


def encode_secret(secret: bytes) -> str:
    """Return a secret as the receiver gets it."""
    return "whsec_" + base64.b64encode(secret).decode()


def signature_headers(
    secrets: Sequence[bytes], id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the headers that identify and sign a message.

    Parameters
    ----------
    secrets: each makes a signature; a receiver accepts a message if it can verify one of them.
    id: of the message, the same in every attempt; without a dot.
    timestamp: of the attempt, in seconds since 1970.
    """
    signed = f"{id}.{timestamp}.".encode() + body
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    signatures = (f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
