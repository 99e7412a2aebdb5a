"""How many connections a server process holds, and which of them it closes.

Connections are counted before anything is read from them. A connection is a stranger until a
request on it is authenticated. At a limit, the oldest stranger without a request in progress makes
room for the new connection, so that strangers cannot keep others out by holding connections.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from recalib.settings import Settings
from service.access.load_shedding import LoadShedding
from service.metrics import LIMITED

if TYPE_CHECKING:
    from service.http.limited_protocol import LimitedProtocol

#: Key of the `ConnectionLimits` in the lifespan's state.
LIMITS = "connection_limits"
#: Longest interval between two checks of the time limits, in seconds.
_SWEEP_SECONDS = 1.0


def _free_descriptors() -> int:
    """Return how many more files this process can open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    folder = Path("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")  # noqa: PTH112
    return limit - len(list(folder.iterdir()))


class ConnectionLimits:
    """The open connections of a server process; used by its event loop only.

    Construct it once the database, the blobs and the gRPC server are open: connections get half of
    the file descriptors that are free then.
    """

    def __init__(self, settings: Settings, load_shedding: LoadShedding) -> None:
        #: How long a client may take for a head, in seconds.
        self.receive_seconds = settings.receive_seconds
        #: Maximum number of connections.
        self.max_connections = max(1, min(settings.max_connections, _free_descriptors() // 2))
        #: Refused connections stay open for a moment, so that their clients read the reason.
        self._max_refused = self.max_connections // 8
        self.load_shedding = load_shedding
        self._connections: set[LimitedProtocol] = set()
        self._strangers: OrderedDict[LimitedProtocol, None] = OrderedDict()
        self._refused: OrderedDict[LimitedProtocol, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: LimitedProtocol) -> bool:
        """Count a connection; False: there is no place for it."""
        if len(self) >= self.max_connections and not self._evict():
            self._refuse(connection)
            return False
        self._strangers[connection] = None
        self._connections.add(connection)
        return True

    def leave(self, connection: LimitedProtocol) -> None:
        """Forget a connection."""
        self._refused.pop(connection, None)
        self._connections.discard(connection)
        self._strangers.pop(connection, None)

    def authenticate(self, connection: LimitedProtocol) -> None:
        """Record that a request on this connection was authenticated."""
        self._strangers.pop(connection, None)

    def _evict(self) -> bool:
        """Close the oldest stranger without a request in progress; False: there is none."""
        for connection in self._strangers:
            if not connection.is_busy:
                self._abort(connection)
                return True
        return False

    def _refuse(self, connection: LimitedProtocol) -> None:
        LIMITED.labels("connections").inc()
        while len(self._refused) > self._max_refused:
            self._abort(next(iter(self._refused)))
        self._refused[connection] = None

    def _abort(self, connection: LimitedProtocol) -> None:
        self.leave(connection)
        connection.transport.abort()

    async def keep_sweeping(self) -> None:
        """Close connections whose clients are too slow, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self.receive_seconds / 5))
            now = loop.time()
            for connection in [*self._connections, *self._refused]:
                if connection.is_too_slow(now):
                    connection.time_out()
