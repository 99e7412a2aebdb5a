"""API keys: create, limit and revoke; a secret is shown once. People who are signed in."""

from __future__ import annotations

from typing import Any, Literal

from anyio import to_thread
from fastapi import Response

from recalib.core.access import SCOPES, ApiKey, Limits, Principal
from recalib.errors import InputError, NotFoundError, RecalibError
from service.console.actions import Action, act_on, confirm
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import SignedIn, Visit, number_field
from service.schemas import Text

_DAY_SECONDS = 86_400.0
#: Limits and their units.
_LIMITS = {
    "requests_per_second": "requests a second",
    "rows_per_second": "rows a second",
    "concurrency": "requests at once",
    "body_bytes": "bytes of a body",
    "queued_jobs": "jobs that wait",
}


def check_administrator(visit: Visit) -> None:
    """Raise `ForbiddenError` unless the person administers all models."""
    visit.principal.check_scope("admin")
    visit.principal.check_model(None)


@router.get("/keys")
async def keys(visit: SignedIn) -> Response:
    check_administrator(visit)
    return await _keys(visit, {})


async def _keys(
    visit: Visit, fields: dict[str, str], error: RecalibError | None = None, secret: str = ""
) -> Response:
    def read() -> tuple[list[ApiKey], dict[bytes, int], dict[Principal, int]]:
        with visit.state.registry.reading() as tx:
            return tx.api_keys.all()[::-1], tx.sessions.counts(), tx.sessions.people()

    found, sessions, people = await to_thread.run_sync(read)
    return page(
        visit, "keys", error=error, secret=secret, fields=fields,
        keys=found, sessions=sessions, people=people, scopes=SCOPES, limits=_LIMITS,
    )  # fmt: skip


@router.post("/keys")
async def create_key(visit: SignedIn) -> Response:
    """Create a key, and show its secret on the page that answers."""
    check_administrator(visit)
    fields = await visit.form()
    try:
        models = fields.get("models", "").split() or None
        days = number_field(fields, "days")
        lifetime = None if days is None else days * _DAY_SECONDS
        scopes, limits = [scope for scope in SCOPES if f"scope_{scope}" in fields], _limits(fields)

        def write() -> str:
            with visit.state.registry.transaction() as tx:
                return tx.api_keys.create(
                    fields.get("name", ""), scopes, models, lifetime, None, limits,
                    visit.principal.name,
                )  # fmt: skip

        secret = await to_thread.run_sync(write)
    except RecalibError as error:
        return await _keys(visit, fields, error)
    await to_thread.run_sync(visit.state.access.refresh)
    return await _keys(visit, {"name": fields["name"]}, secret=secret)


def _limits(fields: dict[str, str]) -> Limits:
    values: dict[str, Any] = {name: number_field(fields, name) for name in _LIMITS}
    for name, value in values.items():
        if value is not None and not name.endswith("per_second"):
            if value % 1:
                raise InputError(name, found=f"{value:g}", accepted="a whole number")
            values[name] = int(value)
    return Limits(**values)


@router.get("/keys/{name}/limits")
async def limits_form(visit: SignedIn, name: Text) -> Response:
    check_administrator(visit)
    return await _limits_form(visit, name)


async def _limits_form(
    visit: Visit,
    name: str,
    sent: dict[str, str] | None = None,
    error: RecalibError | None = None,
) -> Response:
    def read() -> ApiKey | None:
        with visit.state.registry.reading() as tx:
            return next((key for key in tx.api_keys.active() if key.name == name), None)

    key = await to_thread.run_sync(read)
    if key is None:
        raise NotFoundError("active key", name)
    present = {
        field: f"{value:.15g}"
        for field in _LIMITS
        if (value := getattr(key.limits, field)) is not None
    }
    fields = present if sent is None else sent
    return page(visit, "limits", error=error, name=name, limits=_LIMITS, fields=fields)


@router.post("/keys/{name}/limits")
async def limit_key(visit: SignedIn, name: Text) -> Response:
    check_administrator(visit)
    fields = await visit.form()
    try:
        limits = _limits(fields)

        def write() -> None:
            with visit.state.registry.transaction() as tx:
                tx.api_keys.limit(name, limits, visit.principal.name, reset=True)
            visit.state.access.refresh()

        await to_thread.run_sync(write)
    except InputError as error:
        return await _limits_form(visit, name, fields, error)
    return redirect(visit, "keys")


Ending = Literal["revoke", "sign-out"]


def _ending(name: str, ending: Ending) -> Action:
    if ending == "revoke":
        title, verb = f"Revoke the key {name}", "Revoke"
        effects = [
            f"Requests with the key {name} are refused by this server now, and by others within "
            "the time at which they read keys.",
            "Sessions that it opened end.",
            "A revoked key cannot be used again, and its name stays in the audit trail.",
        ]
    else:
        title, verb = f"End the sessions of {name}", "End them"
        effects = [
            f"Everyone who is signed in as {name} signs in again, on all servers.",
            "A key stays valid: revoke it if someone else may have it. A person whom the issuer "
            "signs in again has a session again.",
        ]
    return Action(title, effects, verb, "keys", asks_reason=False)


@router.get("/keys/{name:path}/{ending}")
async def confirm_ending(visit: SignedIn, name: Text, ending: Ending) -> Response:
    check_administrator(visit)
    return await confirm(visit, _ending(name, ending))


@router.post("/keys/{name:path}/{ending}")
async def end(visit: SignedIn, name: Text, ending: Ending) -> Response:
    """Revoke a key, or end the sessions of a key or a person."""
    check_administrator(visit)

    async def act(fields: dict[str, str]) -> None:
        def write() -> None:
            with visit.state.registry.transaction() as tx:
                end = tx.api_keys.revoke if ending == "revoke" else tx.sessions.close_all
                end(name, visit.principal.name)
            visit.state.access.refresh()

        await to_thread.run_sync(write)

    return await act_on(visit, _ending(name, ending), act)
