"""Whether requests can be served; no transport here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from recalib.errors import UnavailableError
from service.state import State

__all__ = ["Ready", "readiness"]


class Ready(BaseModel):
    """Whether requests can be served."""

    ready: bool
    registry: Literal["reachable", "unreachable"]
    loaded: int = Field(description="Aliases and versions that this process has at hand.")
    detail: str


def readiness(state: State) -> Ready:
    """Say whether requests can be served: without the registry, those for what is loaded can."""
    loaded = len(state.calibrators)
    try:
        state.registry.check()
    except UnavailableError as error:
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=str(error))
    return Ready(ready=True, registry="reachable", loaded=loaded, detail="")
