"""Signing in with an API key or at an issuer of tokens, and signing out."""

from __future__ import annotations

import hmac
from urllib.parse import quote, unquote, urlsplit

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from recalib.errors import (
    LimitedError,
    NotFoundError,
    RecalibError,
    UnauthorizedError,
    UnavailableError,
)
from service.access.oidc_sign_in import Attempt, authorization_url
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import Anyone, SignedIn, Visit

_FIRST_PAGE = "models"
#: Why someone signs in again; a link cannot put other words into the page.
REASONS = {
    "ended": "The session has ended.",
    "revoked": "The API key of the session has expired or been revoked.",
    "begin": "This sign-in did not begin in this browser, or long ago: begin again.",
    "out": "You have signed out.",
}
#: The cookie of a sign-in at the issuer: its secret and the page that was asked for.
_ATTEMPT, _ATTEMPT_SECONDS, _CALLBACK = "recalib_sign_in", 600, "sign-in/callback"
#: At the address of the server.
root = APIRouter(include_in_schema=False)


@root.get("/")
async def first_page(visit: Anyone) -> Response:
    return redirect(visit, _FIRST_PAGE)


@router.get("/sign-in")
async def sign_in_form(visit: Anyone, next: str = "", because: str = "") -> Response:
    if visit.is_keyless:
        return redirect(visit, _FIRST_PAGE)
    return _form(visit, next, because=REASONS.get(because, ""))


@router.post("/sign-in")
async def sign_in(visit: Anyone) -> Response:
    fields = await visit.form_without_session()
    wanted = fields.get("next", "")
    try:
        await visit.sign_in_with_key(fields.get("key", "").strip())
    except (UnauthorizedError, LimitedError) as error:
        return _form(visit, wanted, error)
    return redirect(visit, _local(wanted))


@router.get("/sign-in/issuer")
async def to_issuer(visit: Anyone, next: str = "") -> Response:
    """Send the browser to the issuer, with a secret that ties the answer to it."""
    tokens = visit.state.access.issuer
    if tokens is None:
        raise NotFoundError("page", "sign-in/issuer")
    attempt = Attempt(visit.absolute_url(_CALLBACK))
    answer = RedirectResponse(authorization_url(tokens, attempt), 303)
    kept = f"{attempt.secret}.{quote(next[:1_000], safe='')}"
    visit.set_cookie(answer, _ATTEMPT, kept, _ATTEMPT_SECONDS)
    return answer


@router.get("/" + _CALLBACK)
async def from_issuer(visit: Anyone, state: str = "", code: str = "") -> Response:
    """Open the session of a person whom the issuer sends back."""
    secret, _, wanted = visit.request.cookies.get(_ATTEMPT, "").partition(".")
    attempt = Attempt(visit.absolute_url(_CALLBACK), secret)
    if not secret or not hmac.compare_digest(state.encode(), attempt.state.encode()):
        return redirect(visit, "sign-in?because=begin")
    wanted = unquote(wanted)
    try:
        if not code:
            raise UnauthorizedError("the issuer has not signed you in")
        await visit.sign_in_with_code(attempt, code)
        answer = redirect(visit, _local(wanted))
    except (UnauthorizedError, LimitedError, UnavailableError) as error:
        answer = _form(visit, wanted, error)
    visit.set_cookie(answer, _ATTEMPT, "", 0)
    return answer


@router.post("/sign-out")
async def sign_out(visit: SignedIn) -> Response:
    await visit.form()
    await visit.close_session()
    return redirect(visit, "sign-in?because=out")


def _form(
    visit: Visit, wanted: str, error: RecalibError | None = None, because: str = ""
) -> Response:
    tokens = visit.state.access.issuer
    issuer = "" if tokens is None else urlsplit(tokens.oidc.issuer).netloc
    return page(visit, "sign_in", error=error, next=wanted, because=because, issuer=issuer)


def _local(wanted: str) -> str:
    """Return the page of the console that a path names; the first one for anything else."""
    _, found, rest = wanted.partition("/console/")
    is_page = found and wanted.startswith("/") and "\\" not in wanted and rest != "sign-out"
    return rest if is_page else _FIRST_PAGE
