"""Webhooks without a database: allowed targets, signatures, and formats of messages."""

from recalib.webhooks.formats import FORMATS, Format, message_of
from recalib.webhooks.signatures import encode_secret, signature_headers
from recalib.webhooks.targets import AllowedTargets, check_url, resolve

__all__ = [
    "FORMATS",
    "AllowedTargets",
    "Format",
    "check_url",
    "encode_secret",
    "message_of",
    "resolve",
    "signature_headers",
]
