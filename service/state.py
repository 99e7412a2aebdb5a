"""What the handlers of one server process work with, and how an endpoint gets hold of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from recalib.registry import Registry
from recalib.settings import Settings
from service.predict.loaded import LoadedCalibrators

__all__ = ["ANONYMOUS", "State", "StateOf"]

#: Who acts, in the audit trail, while there are no keys.
ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class State:
    """Made once when the process starts."""

    settings: Settings
    registry: Registry
    calibrators: LoadedCalibrators


def _of(request: Request) -> State:
    state: State = request.app.state.recalib
    return state


StateOf = Annotated[State, Depends(_of)]
