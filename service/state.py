"""The state of a server process, and the dependency by which endpoints get it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from fastapi import Depends, Request

from recalib.registry import Registry
from recalib.settings import Settings
from service.access.authenticator import Authenticator
from service.access.body_budget import BodyBudget
from service.access.load_shedding import LoadShedding
from service.event_feed import EventFeed
from service.serving.ids import PredictionIds
from service.serving.loaded_calibrators import LoadedCalibrators
from service.serving.micro_batch import MicroBatcher
from service.single_flight import SingleFlight

#: Smaller bodies do not count as memory.
_UNCOUNTED_BYTES = 16_384


@dataclass(frozen=True)
class State:
    """Made once when the process starts."""

    settings: Settings
    registry: Registry
    calibrators: LoadedCalibrators
    access: Authenticator
    #: Calls that may hang while the registry does, one at a time of each kind.
    single_flight: SingleFlight[Any] = field(default_factory=lambda: SingleFlight(5))

    @cached_property
    def load_shedding(self) -> LoadShedding:
        """The limit of requests and RPCs in progress."""
        return LoadShedding(self.settings)

    @cached_property
    def event_feed(self) -> EventFeed:
        """What wakes the streams of events."""
        return EventFeed(self.registry, self.settings.max_event_streams)

    @cached_property
    def bodies(self) -> BodyBudget:
        """The memory for bodies of requests."""
        settings = self.settings
        return BodyBudget(
            max(settings.max_bodies_bytes, 2 * settings.max_body_bytes),
            min(
                _UNCOUNTED_BYTES,
                settings.max_body_bytes,
                settings.max_json_bytes,
                settings.max_upload_bytes,
            ),
        )

    @cached_property
    def micro_batcher(self) -> MicroBatcher:
        """Joins small batches."""
        return MicroBatcher(self.ids)

    @cached_property
    def ids(self) -> PredictionIds:
        """What makes ids for the predictions of this process."""
        return PredictionIds(self.registry, self.settings.load_seconds)


# FastAPI runs a dependency that is no coroutine in a thread of its own.
async def _of(request: Request) -> State:
    return request.app.state.recalib


StateDependency = Annotated[State, Depends(_of)]
