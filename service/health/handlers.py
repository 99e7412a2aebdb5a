"""Whether requests can be served; no transport here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from recalib.errors import UnavailableError
from service.state import State

__all__ = ["Ready", "readiness"]

_PATIENCE_SECONDS = 0.5


class Ready(BaseModel):
    """Whether requests can be served."""

    ready: bool
    registry: Literal["reachable", "unreachable"]
    loaded: int = Field(description="Aliases and versions that this process has at hand.")
    detail: str


def readiness(state: State) -> Ready:
    """Say whether requests can be served: without the registry, those for what is loaded can.

    Who asks has little patience, and takes silence for a no. So where the answer is yes whatever
    the registry says, the registry is given half a second to say it.
    """
    loaded = len(state.calibrators)
    patience = _PATIENCE_SECONDS if loaded else state.settings.load_seconds
    try:
        remark: str = state.single_flight.submit("check", state.registry.check).result(patience)
    except UnavailableError as error:
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=str(error))
    except TimeoutError:
        detail = f"the registry has not answered within {patience:g} seconds"
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=detail)
    return Ready(ready=True, registry="reachable", loaded=loaded, detail=remark)
