"""Send large gRPC messages to a method, all at once, and print how often each status came back.

python -m tests.end_to_end.large_messages ADDRESS METHOD MESSAGES MIB [KEY]
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc

_TIMEOUT_SECONDS = 100.0
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    # Each message has its own connection.
    ("grpc.use_local_subchannel_pool", 1),
]


def _send(address: str, method: str, body: bytes, key: str | None, _: int) -> str:
    """Send one message and return the name of the status."""
    metadata = [] if key is None else [("authorization", f"Bearer {key}")]
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            call = channel.stream_stream(method)
            list(call(iter([body]), timeout=_TIMEOUT_SECONDS, metadata=metadata))
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def main(address: str, method: str, messages: int, mib: int, key: str | None = None) -> None:
    """Send the messages and print the statuses."""
    send = partial(_send, address, method, bytes(mib * 2**20), key)
    with ThreadPoolExecutor(messages) as executor:
        json.dump(Counter(executor.map(send, range(messages))), sys.stdout)


if __name__ == "__main__":
    address, method, messages, mib, *rest = sys.argv[1:]
    main(address, method, int(messages), int(mib), *rest)
