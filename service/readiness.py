"""Readiness of the server, independent of the transport."""

from __future__ import annotations

from recalib.contract.monitoring import Ready
from recalib.errors import UnavailableError
from service.state import State

_TIMEOUT_SECONDS = 0.5


def readiness(state: State) -> Ready:
    """Return whether requests can be served. Loaded calibrators need no registry.

    Probes have short timeouts and take silence for a failure. If a calibrator is loaded, the server
    is ready in any case, so the registry has half a second to respond.
    """
    loaded = len(state.calibrators)
    timeout = _TIMEOUT_SECONDS if loaded else state.settings.load_seconds
    try:
        remark: str = state.single_flight.submit("check", state.registry.check).result(timeout)
    except UnavailableError as error:
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=str(error))
    except TimeoutError:
        detail = f"the registry has not answered within {timeout:g} seconds"
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=detail)
    return Ready(ready=True, registry="reachable", loaded=loaded, detail=remark)
