"""Pictures as SVG, of the definitions that reports have; a child process draws them."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import lru_cache
from typing import Any, Literal

import msgspec
import orjson
from fastapi import Response

from recalib.contract.monitoring import HistoryEntry
from recalib.core.card import ReliabilityBins
from recalib.errors import NotFoundError
from service.calibrators.rest import get_calibrator
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.models.rest import get_model
from service.monitoring.rest import list_monitoring_history

Theme = Literal["light", "dark"]
Kind = Literal["timeline", "reliability", "curves"]

#: The child holds large libraries, so it ends some time after the last picture.
_IDLE_SECONDS = 120.0
#: Sums of one row: the first picture of a child takes seconds.
_ROW = {"count": [1], "confidence": [0.5], "correct": [1]}
_FIRST = orjson.dumps({"series": {"before": _ROW}, "classes": 3})
#: Pictures that are kept: those of two pages of versions.
_MOST_DRAWN = 256
_HEADERS = {
    "Cache-Control": "private, max-age=3600",
    # Of a picture alone in a window; Vega styles its text.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


class _Painter:
    """Draws pictures in a child process, one at a time, and keeps the latest."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._drawn: dict[tuple[Kind, bytes, Theme], bytes] = {}

    async def paint(self, kind: Kind, content: bytes, theme: Theme) -> bytes:
        """Return a picture, from its arguments as JSON."""
        key = (kind, content, theme)
        if key in self._drawn:  # and wait for no other picture
            return self._drawn[key]
        async with self._lock:
            if key not in self._drawn:
                while len(self._drawn) >= _MOST_DRAWN:
                    self._drawn.pop(next(iter(self._drawn)))
                self._drawn[key] = await self._draw(*key)
            return self._drawn[key]

    def warm(self) -> None:
        """Start the child if there is none, with a first picture."""
        if self._pool is None:
            self._submit("reliability", _FIRST, "light")

    async def _draw(self, kind: Kind, content: bytes, theme: Theme) -> bytes:
        try:
            return await asyncio.wrap_future(self._submit(kind, content, theme))
        except BaseException:  # the next picture gets another child
            self._end()
            raise
        finally:
            self._stay()

    def _submit(self, *arguments: Any) -> Future[bytes]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context)
        self._stay()
        return self._pool.submit(draw, *arguments)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end)

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


@lru_cache(maxsize=4)
def _painter(loop: asyncio.AbstractEventLoop) -> _Painter:
    """Return the painter of an event loop, to which its lock belongs."""
    return _Painter()


def prepare_pictures(visit: Visit) -> None:
    """Start the child when a person opens a page; a page that follows the server keeps none."""
    if visit.request.headers.get("sec-fetch-mode") == "navigate":
        _painter(asyncio.get_running_loop()).warm()


def draw(kind: Kind, content: bytes, theme: Theme) -> bytes:
    """Return a picture as SVG; the child process runs this."""
    from recalib.reporting.plots import timeline, training_curves
    from recalib.reporting.plots.reliability_diagram import diagram_of_card
    from recalib.reporting.plots.save import to_svg
    from recalib.reporting.plots.style import DARK_COLOURS

    arguments = orjson.loads(content)
    if kind == "reliability":
        sums = msgspec.convert(arguments.pop("series"), dict[str, ReliabilityBins])
        svg = to_svg(diagram_of_card(sums, **arguments).to_dict())
    elif kind == "curves":
        svg = to_svg(training_curves(**arguments).to_dict())
    else:
        svg = to_svg(timeline(**arguments).to_dict())
    if theme == "dark":
        for light, dark in DARK_COLOURS.items():
            svg = svg.replace(f'"{light}"', f'"{dark}"')
    return svg.encode()


@router.get("/models/{model}/timeline.svg")
async def timeline_picture(visit: SignedIn, model: str, theme: Theme = "light") -> Response:
    facts = await visit.call(get_model, model=model)
    history = await visit.call(list_monitoring_history, model=model, limit=200)
    arguments = {
        "windows": _windows(history.items),
        "objective": facts.monitoring.objective,
        "heading": model,
    }
    return await picture("timeline", arguments, theme)


@router.get("/models/{model}/versions/{version}/reliability.svg")
async def reliability_picture(
    visit: SignedIn, model: str, version: int, theme: Theme = "light", small: bool = False
) -> Response:
    """Draw the reliability before and after calibration, on the rows of the card's metrics."""
    found = await visit.call(get_calibrator, model=model, version=version)
    sums = found.card.get("reliability")
    if not sums:
        raise NotFoundError("reliability diagram of version", str(version))
    arguments = {"series": sums, "classes": found.card["classes"]}
    if small:
        arguments |= {"side": 110, "has_strip": False}
    return await picture("reliability", arguments, theme)


async def picture(kind: Kind, arguments: dict[str, Any], theme: Theme) -> Response:
    """Return the answer with a picture."""
    painter = _painter(asyncio.get_running_loop())
    content = await painter.paint(kind, orjson.dumps(arguments), theme)
    return Response(content, media_type="image/svg+xml", headers=_HEADERS)


def _windows(history: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the arguments of `recalib.reporting.plots.timeline`, oldest first."""
    return [
        {
            **{name: entry.evidence.get(name) for name in ("ece", "ece_low", "ece_high")},
            **{name: entry.evidence.get(name) for name in ("log_evidence", "threshold")},
            **entry.evidence,
            "state": entry.state,
            "start": entry.start.timestamp(),
            "time": entry.end.timestamp(),
        }
        for entry in reversed(history)
        if entry.evidence.get("threshold") is not None
    ]
