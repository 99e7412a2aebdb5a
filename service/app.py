"""The REST application of one server process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import recalib
from recalib.core.access import Limits
from recalib.errors import UnavailableError
from recalib.observability import telemetry
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.authenticator import Authenticator
from service.access.oidc import OidcConfig
from service.access.trusted_proxies import TrustedProxies
from service.audit.rest import router as audit
from service.batches.rest import router as batches
from service.calibrators.rest import router as calibrators
from service.console.pages import root
from service.console.pages import router as console
from service.datasets.rest import router as datasets
from service.evaluations.rest import router as evaluations
from service.events.rest import router as events
from service.health.rest import router as health
from service.http import docs_pages, problems
from service.http.entry import Entry
from service.http.limited_protocol import LOAD_SHEDDING, RECEIVE_SECONDS
from service.http.openapi import TAGS, add_problem_responses, describe_properties
from service.http.security_headers import Cors
from service.inference.rest import router as inference
from service.inference.tensors import schemas
from service.jobs.rest import router as jobs
from service.labels.housekeeping import run_housekeeping
from service.labels.rest import router as labels
from service.models.rest import router as models
from service.monitoring.flush import keep_flushing
from service.monitoring.rest import router as monitoring
from service.monitoring.schedule import keep_watching
from service.predict.rest import router as predict
from service.serving.loaded_calibrators import LoadedCalibrators, warm_up
from service.serving.traffic import Traffic
from service.shutdown import GRACE_SECONDS, on_stop_signal
from service.state import State
from service.training_runs.rest import router as training_runs
from service.webhooks.rest import router as webhooks

if TYPE_CHECKING:
    from service.access.oidc_tokens import TokenVerifier

log = logging.getLogger(__name__)

#: The most frequent routes first: they are matched in order.
_ROUTERS = (
    predict, inference, labels, models, monitoring, datasets, calibrators, evaluations, batches,
    training_runs, jobs, events, webhooks, audit, health,
)  # fmt: skip
#: How long a hanging call to the registry may delay shutdown; there are three such waits.
_SETTLE_SECONDS = 1.0
#: How long promotions are only polled after the connection for notifications has broken.
_LISTEN_AGAIN_SECONDS = 5.0


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application; without settings, read them from the environment."""
    settings = settings or Settings()
    telemetry.configure(settings, "recalib-server")
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    access = Authenticator(
        registry,
        settings.require_keys,
        _token_verifier(settings),
        _default_limits(settings),
        settings.public_docs,
        TrustedProxies(settings.trusted_proxies),
    )
    state = State(settings, registry, _calibrators(settings, registry), access)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        await asyncio.gather(_verify(state), _load_keys(state), _load_champions(state))
        loops = (
            _refresh_aliases,
            _refresh_keys,
            _refresh_issuer_keys,
            run_housekeeping,
            keep_flushing,
            keep_watching,
            _poll_events,
        )
        tasks = [asyncio.create_task(loop(state)) for loop in loops]
        on_stop_signal(state.event_feed.close)
        try:
            async with _rpc_server(state) as port:
                app.state.grpc_port = port
                tasks.append(asyncio.create_task(state.load_shedding.keep_measuring()))
                yield {
                    RECEIVE_SECONDS: settings.receive_seconds,
                    LOAD_SHEDDING: state.load_shedding,
                }
                state.event_feed.close()
        finally:
            await _cancel(tasks)
            # Let calls on threads end: a connection that is in use is not closed below.
            for component in (state.single_flight, state.calibrators, state.ids):
                await to_thread.run_sync(component.wait, _SETTLE_SECONDS)
            registry.close()
            await to_thread.run_sync(telemetry.shutdown)

    app = Application(
        state,
        title="Recalib",
        version=recalib.__version__,
        description="Fits, versions and serves calibrators of classifier probabilities.",
        openapi_tags=TAGS,
        openapi_external_docs=_documentation(settings),
        docs_url=None,
        redoc_url=None,
        routes=_routes(),
        lifespan=lifespan,
    )
    problems.install(app)
    pages = docs_pages.install(app)
    if settings.public_docs:
        access.open_paths |= pages
    return app


@functools.cache
def _routes() -> list[BaseRoute]:
    """Return the routes of all features; applications of one process share them.

    FastAPI builds each included route at the first request, which takes a millisecond a route.
    """
    parent = APIRouter()
    for router in (*_ROUTERS, console, root):
        parent.include_router(router)
    return parent.routes


def _calibrators(settings: Settings, registry: Registry) -> LoadedCalibrators:
    traffic = Traffic(settings.bucket_seconds)
    return LoadedCalibrators(registry, settings.cache_bytes, settings.load_seconds, traffic)


def _default_limits(settings: Settings) -> Limits:
    names = (field.name for field in dataclasses.fields(Limits))
    return Limits(**{name: getattr(settings, f"key_{name}") for name in names})


def _documentation(settings: Settings) -> dict[str, str] | None:
    return {"description": "Documentation", "url": settings.docs_url} if settings.docs_url else None


def _token_verifier(settings: Settings) -> TokenVerifier | None:
    oidc = OidcConfig.of(settings)
    if oidc is None:
        return None
    # Imported only if configured: it takes 9 MB.
    from service.access.oidc_tokens import TokenVerifier

    return TokenVerifier(oidc)


class Application(FastAPI):
    """FastAPI behind `Entry`, with problems in its OpenAPI description."""

    def __init__(self, state: State, **options: Any) -> None:
        super().__init__(**options)
        self.state.recalib = state
        self._answer: ASGIApp = Entry(state, super().__call__)
        origins = state.settings.cors_origins.split()
        # Before admission: a browser sends preflight requests (OPTIONS) without a key.
        if origins:
            self._answer = Cors(
                self._answer, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
            )

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = add_problem_responses(super().openapi())
            document["components"]["schemas"].update(schemas())
            describe_properties(document["components"]["schemas"])
            self.openapi_schema = document
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


@contextlib.asynccontextmanager
async def _rpc_server(state: State) -> AsyncIterator[int | None]:
    """Run the gRPC server while the context lasts; yield its port, or None if it is disabled."""
    if state.settings.grpc_port < 0:
        yield None
        return
    # Imported only if enabled: it takes 11 MB.
    from service.grpc_server import RpcServer

    server = RpcServer(state, GRACE_SECONDS)
    port = await server.start()
    on_stop_signal(server.drain)
    try:
        yield port
    finally:
        await server.stop()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they end: `asyncio.wait_for` of Python 3.11 can lose a cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_SETTLE_SECONDS)


async def _verify(state: State) -> None:
    """Look for damage of the database before the first request, with a time limit."""
    verify, seconds = state.registry.verify, state.settings.load_seconds
    try:
        await state.single_flight.run("verify", verify, seconds)
    except UnavailableError as error:
        log.error("Nothing is written: %s", error, extra={"action": "database_damaged"})
    except TimeoutError:  # writes wait for it
        log.warning("The database is still verified.", extra={"action": "verification_slow"})


async def _load_keys(state: State) -> None:
    """Read the keys of registry and issuer at startup, with a time limit."""
    issuer_keys = asyncio.ensure_future(state.access.refresh_issuer_keys(only_if_due=True))
    with contextlib.suppress(UnavailableError, TimeoutError):
        await state.single_flight.run("keys", state.access.refresh, state.settings.load_seconds)
    await issuer_keys


async def _load_champions(state: State) -> None:
    """Load champions before the first request, with a time limit."""
    settings = state.settings
    if settings.warm_champions == 0:
        return
    load = partial(state.calibrators.load_champions, settings.warm_champions, settings.load_seconds)
    try:
        await state.single_flight.run("champions", load, settings.load_seconds)
    except TimeoutError:
        pass
    except Exception:  # of any kind: they are loaded when they are used
        log.exception("Champions are not loaded.", extra={"action": "champions_not_loaded"})


async def _refresh_keys(state: State) -> None:
    """Read the API keys and write refusals to the audit trail, at intervals."""
    while True:
        await asyncio.sleep(state.settings.refresh_seconds)
        try:
            await state.single_flight.run("keys", state.access.refresh)
            await state.single_flight.run("refusals", state.access.write_refusals)
        except UnavailableError:
            pass
        except Exception:  # the loop must continue, or later revocations are missed
            log.exception("Revoked keys were not read.", extra={"action": "key_refresh_failed"})


async def _refresh_issuer_keys(state: State) -> None:
    """Refresh the issuer's keys, in a separate task because the issuer may be slow."""
    while True:
        await asyncio.sleep(1.0)
        try:
            await state.access.refresh_issuer_keys(only_if_due=True)
        except Exception:  # the loop must continue, or later keys are missed
            log.exception(
                "The keys of the issuer were not read.", extra={"action": "issuer_failed"}
            )


async def _poll_events(state: State) -> None:
    """Wake streams of events, which other processes may write."""
    await state.event_feed.keep_polling(state.settings.refresh_seconds)


async def _refresh_aliases(state: State) -> None:
    """Follow promotions that other processes make: when notified, and at intervals."""
    # Now, so that the first request does not wait for it.
    await state.single_flight.run("warm up", warm_up)
    changed = asyncio.Event()
    listener = asyncio.create_task(_listen(state, changed))
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), state.settings.refresh_seconds)
            changed.clear()
            # On a daemon thread: a hanging registry must not prevent shutdown.
            try:
                await state.single_flight.run("refresh", state.calibrators.refresh)
            except Exception:  # the loop must continue, or later promotions are missed
                log.exception("Promotions not looked for.", extra={"action": "refresh_failed"})
    finally:
        await _cancel([listener])


async def _listen(state: State, changed: asyncio.Event) -> None:
    """Set `changed` when PostgreSQL notifies of a promotion; SQLite does not."""
    while True:
        try:
            async with contextlib.aclosing(state.registry.alias_changes()) as changes:
                async for _ in changes:
                    changed.set()
            return
        except UnavailableError as error:
            log.warning("%s", error, extra={"action": "notifications_ended"})
        except Exception:  # polling goes on, and the next connection may work
            log.exception("Notifications failed.", extra={"action": "notifications_failed"})
        await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
