"""The REST application of one server process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

import recalib
from recalib.access import Limits
from recalib.errors import UnavailableError
from recalib.observability import telemetry
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.authenticator import Authenticator
from service.access.oidc import OidcConfig
from service.audit.rest import router as audit
from service.calibrators.rest import router as calibrators
from service.datasets.rest import router as datasets
from service.health.rest import router as health
from service.http import entry, problems
from service.http.fast_routes import FastRoutes
from service.http.openapi import TAGS, add_problem_responses
from service.inference.rest import FAST_ROUTES as INFER_ROUTES
from service.inference.rest import router as inference
from service.inference.tensors import schemas
from service.jobs.rest import router as jobs
from service.labels.housekeeping import run_housekeeping
from service.labels.rest import router as labels
from service.models.rest import router as models
from service.monitoring.flush import keep_flushing
from service.monitoring.rest import router as monitoring
from service.monitoring.schedule import keep_watching
from service.predict.rest import FAST_ROUTES as CALIBRATE_ROUTES
from service.predict.rest import router as predict
from service.serving.loaded_calibrators import LoadedCalibrators, warm_up
from service.serving.traffic import Traffic
from service.shutdown import GRACE_SECONDS, on_stop_signal
from service.state import State
from service.training_runs.rest import router as training_runs

if TYPE_CHECKING:
    from service.access.oidc_tokens import TokenVerifier

__all__ = ["create_app"]

log = logging.getLogger(__name__)

#: How long a call to a registry that hangs may hold up the end of this process; there are three.
_SETTLE_SECONDS = 1.0


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application; settings come from the environment where none are given."""
    settings = settings or Settings()
    telemetry.configure(settings, "recalib-server")
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    access = Authenticator(
        registry, settings.require_keys, _tokens(settings), _usual_limits(settings)
    )
    state = State(settings, registry, _calibrators(settings, registry), access)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await _first_look_at_keys(state)
        loops = (
            _look_for_promotions,
            _look_for_keys,
            _look_for_issuers_keys,
            run_housekeeping,
            keep_flushing,
            keep_watching,
        )
        working = [asyncio.create_task(one(state)) for one in loops]
        try:
            async with _rpc(state) as port:
                app.state.grpc_port = port
                yield
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)
            # Calls on threads end by themselves; a connection that one holds is not closed here.
            for one in (state.single_flight, state.calibrators, state.ids):
                await to_thread.run_sync(one.wait, _SETTLE_SECONDS)
            registry.close()
            await to_thread.run_sync(telemetry.shutdown)

    app = Application(
        title="Recalib",
        version=recalib.__version__,
        description="Fits, versions and serves calibrators of classifier probabilities.",
        openapi_tags=TAGS,
        lifespan=lifespan,
    )
    app.state.recalib = state
    problems.install(app)
    # The hot path first: routes are matched in order.
    for router in (
        predict,
        inference,
        labels,
        models,
        monitoring,
        datasets,
        calibrators,
        training_runs,
        jobs,
        audit,
        health,
    ):
        app.include_router(router)
    return app


def _calibrators(settings: Settings, registry: Registry) -> LoadedCalibrators:
    traffic = Traffic(settings.bucket_seconds)
    return LoadedCalibrators(registry, settings.cache_bytes, settings.load_seconds, traffic)


def _usual_limits(settings: Settings) -> Limits:
    return Limits(
        settings.key_requests_per_second,
        settings.key_rows_per_second,
        settings.key_concurrency,
        settings.key_body_bytes,
    )


def _tokens(settings: Settings) -> TokenVerifier | None:
    oidc = OidcConfig.of(settings)
    if oidc is None:
        return None
    # Loaded only where it is wanted: what checks signatures takes 9 MB.
    from service.access.oidc_tokens import TokenVerifier

    return TokenVerifier(oidc)


class Application(FastAPI):
    """FastAPI behind `service.http.entry`, with problems in its OpenAPI description."""

    fast_routes = FastRoutes([*CALIBRATE_ROUTES, *INFER_ROUTES])

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = add_problem_responses(super().openapi())
            document["components"]["schemas"].update(schemas())
            self.openapi_schema = document
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        fastapi = super().__call__
        await entry.answer(self.state.recalib, self.fast_routes, fastapi, scope, receive, send)


@contextlib.asynccontextmanager
async def _rpc(state: State) -> AsyncIterator[int | None]:
    """Answer gRPC meanwhile; yields the port, or None where there is to be none."""
    if state.settings.grpc_port < 0:
        yield None
        return
    # Loaded only where it is wanted: it takes 11 MB.
    from service.grpc_server import RpcServer

    server = RpcServer(state, GRACE_SECONDS)
    port = await server.start()
    on_stop_signal(server.drain)
    try:
        yield port
    finally:
        await server.stop()


async def _first_look_at_keys(state: State) -> None:
    """See which keys there are, unless registry and issuer take too long to say so."""
    asking = asyncio.ensure_future(state.access.look(due=True))
    with contextlib.suppress(UnavailableError, TimeoutError):
        looking = asyncio.wrap_future(state.single_flight.submit("keys", state.access.refresh))
        await asyncio.wait_for(looking, state.settings.load_seconds)
    await asking


async def _look_for_keys(state: State) -> None:
    """Keep up to date with keys that are made and revoked."""
    while True:
        await asyncio.sleep(state.settings.refresh_seconds)
        try:
            await asyncio.wrap_future(state.single_flight.submit("keys", state.access.refresh))
            await asyncio.wrap_future(
                state.single_flight.submit("refusals", state.access.write_refusals)
            )
        except UnavailableError:
            pass
        except Exception:  # whatever it was, the next revocation must not be missed
            log.exception("Keys not looked for.", extra={"action": "keys_not_looked_for"})


async def _look_for_issuers_keys(state: State) -> None:
    """Keep up to date with the issuer of tokens; by itself, as it may take its time to answer."""
    while True:
        await asyncio.sleep(1.0)
        try:
            await state.access.look(due=True)
        except Exception:  # whatever it was, its next key must not be missed
            log.exception("Issuer not asked.", extra={"action": "issuer_failed"})


async def _look_for_promotions(state: State) -> None:
    """Keep what aliases mean up to date with promotions made by other processes."""
    # Before the first request has to wait for it.
    await asyncio.wrap_future(state.single_flight.submit("warm up", warm_up))
    while True:
        await asyncio.sleep(state.settings.refresh_seconds)
        # On a thread that may be left behind: a registry that hangs must not keep us from ending.
        try:
            await asyncio.wrap_future(
                state.single_flight.submit("refresh", state.calibrators.refresh)
            )
        except Exception:  # whatever it was, the next promotion must not be missed
            log.exception("Promotions not looked for.", extra={"action": "refresh_failed"})
