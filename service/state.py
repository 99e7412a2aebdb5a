"""What the handlers of one server process work with, and how an endpoint gets hold of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from fastapi import Depends, Request

from recalib.registry import Registry
from recalib.settings import Settings
from service.access.authenticator import Access
from service.predict.ids import PredictionIds
from service.predict.loaded_calibrators import LoadedCalibrators
from service.predict.single_flight import Flights

__all__ = ["State", "StateOf"]


@dataclass(frozen=True)
class State:
    """Made once when the process starts."""

    settings: Settings
    registry: Registry
    calibrators: LoadedCalibrators
    access: Access
    #: Calls that may hang while the registry does, one at a time of each kind.
    flights: Flights[Any] = field(default_factory=lambda: Flights(5))

    @cached_property
    def ids(self) -> PredictionIds:
        """What makes ids for the predictions of this process."""
        return PredictionIds(self.registry, self.settings.load_seconds)


def _of(request: Request) -> State:
    state: State = request.app.state.recalib
    return state


StateOf = Annotated[State, Depends(_of)]
