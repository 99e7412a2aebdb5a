"""A request for a page: the person, what they may do, and calls of operations for them."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlsplit

from anyio import to_thread
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError

from recalib.core.access import ANONYMOUS, Principal, hash_secret
from recalib.errors import (
    ForbiddenError,
    InputError,
    RecalibError,
    TooLargeError,
    UnauthorizedError,
)
from recalib.registry.sessions import Session
from service.access.authenticator import CONSOLE
from service.access.oidc import is_token
from service.access.oidc_sign_in import Attempt
from service.arguments import arguments_of
from service.exchange import Exchange
from service.failures import violation_of
from service.http.entry import EXCHANGE
from service.operations import OPERATIONS
from service.state import State

#: The cookie of a session; without keys, of the form tokens alone.
COOKIE = "recalib_session"
#: A person signs in again after this time; a token is replaced after that one.
LIFETIME_SECONDS, _ROTATION_SECONDS = 12 * 3600, 3600
_MAX_FORM_BYTES = 64 * 1024
#: Hosts to which browsers send secure cookies over HTTP, or that need no secrecy on the way.
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]", "::1")
#: Of a visit before it signs in.
_SIGNED_OUT = Principal("", frozenset())


class NotSignedInError(RecalibError):
    """The page needs a session.

    Parameters
    ----------
    reason: a key of `service.console.signing_in.REASONS`, or "".
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__("sign in")


class Visit:
    """One request of a person for a page.

    Attributes
    ----------
    principal: the person: an API key, or whom the issuer of tokens has signed in.
    is_keyless: whether the server requires no keys, so that there are no sessions.
    """

    def __init__(self, request: Request, state: State) -> None:
        self.request = request
        self.state = state
        self.is_keyless = not state.access.required
        self.principal = ANONYMOUS if self.is_keyless else _SIGNED_OUT
        self._exchange: Exchange = request.scope[EXCHANGE]
        #: The token that the browser has, and the one it gets; "" for none.
        self._token = self._new_token = request.cookies.get(COOKIE, "")

    async def sign_in_from_cookie(self) -> None:
        """Set the principal of the session in the cookie.

        Raises
        ------
        NotSignedInError: no session, it has ended, or its key is revoked or has expired.
        """
        if not self.is_keyless:
            self.principal = await self._principal_of_session()
        elif not self._token:
            self._new_token = secrets.token_urlsafe(32)
        self._exchange.admit_as(self.principal)

    async def _principal_of_session(self) -> Principal:
        def look_up() -> Session | None:
            with self.state.registry.reading() as tx:
                session = tx.sessions.find(self._token)
            if session is not None and session.age_seconds > _ROTATION_SECONDS:
                with self.state.registry.transaction() as tx:
                    self._new_token = tx.sessions.rotate(self._token, session)
            return session

        session = await to_thread.run_sync(look_up) if self._token else None
        if session is None:
            raise NotSignedInError("ended" if self._token else "")
        try:
            return self.state.access.principal_of_session(session)
        except UnauthorizedError:
            raise NotSignedInError("revoked") from None

    async def sign_in_with_key(self, key: str) -> None:
        """Open a session of an API key; raise as `Authenticator.authenticate`."""
        if is_token(key):  # which ends long before a session
            raise UnauthorizedError("this is a token of an issuer, and no API key")
        access, address = self.state.access, self._exchange.address
        self.principal = await access.authenticate(f"Bearer {key}", address)
        await self._open_session(hash_secret(key), LIFETIME_SECONDS)

    async def sign_in_with_code(self, attempt: Attempt, code: str) -> None:
        """Open a session of a person; raise as `Authenticator.sign_in`."""
        self.principal = await self.state.access.sign_in(attempt, code, self._exchange.address)
        await self._open_session(self.principal, self.state.settings.oidc_session_seconds)

    async def _open_session(self, opener: bytes | Principal, lifetime_seconds: float) -> None:
        def write() -> str:
            with self.state.registry.transaction() as tx:
                tx.sessions.close(self._token)
                tx.audit.record(self.principal.name, "sign_in", None, "console")
                return tx.sessions.open(opener, lifetime_seconds)

        self._new_token = await to_thread.run_sync(write)

    async def close_session(self) -> None:
        """End the session."""

        def write() -> None:
            with self.state.registry.transaction() as tx:
                tx.sessions.close(self._token)

        await to_thread.run_sync(write)
        self._new_token = ""

    def add_cookie(self, response: Response) -> None:
        """Set or delete the cookie of a response, if it changes."""
        if self._new_token != self._token:
            self.set_cookie(response, COOKIE, self._new_token, LIFETIME_SECONDS)

    def set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        """Set a cookie of pages that scripts cannot read; delete it if the value is ""."""
        url = self.request.url
        facts: dict[str, Any] = {
            "path": self.url(""),
            "httponly": True,
            "secure": url.scheme == "https" or url.hostname not in _LOCAL_HOSTS,
            "samesite": "lax",
        }
        if value:
            response.set_cookie(name, value, max_age=seconds, **facts)
        else:
            response.delete_cookie(name, **facts)

    @property
    def form_token(self) -> str:
        """What a form sends along: a page of another site does not know it."""
        return _form_token(self._new_token)

    async def form(self) -> dict[str, str]:
        """Return the fields of the form that was sent; `ForbiddenError` if not of this session."""
        fields = await self.form_without_session()
        self.check_form_token(fields.pop("form_token", ""))
        return fields

    def check_form_token(self, sent: str) -> None:
        """Raise `ForbiddenError` unless a form has the token of this session."""
        expected = _form_token(self._token)
        if not expected or not hmac.compare_digest(sent.encode(), expected.encode()):
            raise ForbiddenError("the form is of another session: load the page again")

    async def form_without_session(self) -> dict[str, str]:
        """Return the fields of a form; `TooLargeError` for more than 64 KiB."""
        content = bytearray()
        async for part in self.request.stream():
            content += part
            if len(content) > _MAX_FORM_BYTES:
                accepted = f"at most {_MAX_FORM_BYTES} bytes"
                raise TooLargeError(
                    "form", found=f"over {_MAX_FORM_BYTES} bytes", accepted=accepted
                )
        try:
            pairs = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=200)
        except ValueError:
            raise InputError("form", found="no form", accepted="fields of a form") from None
        if any("\0" in value for _, value in pairs):  # which no header could bring either
            raise InputError("form", found="a NUL", accepted="text without NUL")
        return dict(pairs)

    @property
    def body_limit(self) -> int:
        """The largest upload of this session, in bytes."""
        largest = self.state.settings.max_upload_bytes
        return min(largest, self._exchange.body_bytes or largest)

    def may(self, operation: str, model: str | None = None) -> bool:
        """Return whether the person may do an operation."""
        return self.state.access.may(self.principal, OPERATIONS[operation], model)

    def authorise(self, endpoint: Callable[..., Any], model: str | None = None) -> None:
        """Raise `ForbiddenError` if the person may not do the operation of an endpoint."""
        self._exchange.authorise(OPERATIONS[endpoint.__name__], model)

    @staticmethod
    def checked(endpoint: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
        """Return all arguments of an operation, as `call` passes them on."""
        try:
            return arguments_of(endpoint).checked(arguments)
        except RequestValidationError as error:
            raise InputError(**violation_of(error.errors()[0], error.body)) from None

    async def call(self, endpoint: Callable[..., Any], **arguments: Any) -> Any:
        """Return the answer of an operation's endpoint, whose body is a dictionary here.

        Raises
        ------
        ForbiddenError: the person may not do it.
        InputError: REST refuses the arguments; it names the first field.
        """
        self.authorise(endpoint, arguments.get("model"))
        call = partial(endpoint, state=self.state, **self.checked(endpoint, **arguments))
        return await (call() if inspect.iscoroutinefunction(endpoint) else to_thread.run_sync(call))

    def url(self, path: str) -> str:
        """Return the address of a page, below the path of `public_url`, which a proxy removes."""
        prefix = urlsplit(self.state.settings.public_url).path.rstrip("/")
        return f"{prefix}{CONSOLE}{quote(path, safe='/?&=#%')}"

    def absolute_url(self, path: str) -> str:
        """Return the address of a page with that of the server, as people use it."""
        public = urlsplit(self.state.settings.public_url or str(self.request.base_url))
        return f"{public.scheme}://{public.netloc}{self.url(path)}"


def number_field(fields: dict[str, str], name: str) -> float | None:
    """Return the number of a field of a form, or None if it is empty."""
    text = fields.get(name, "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(name, found=repr(text)[:40], accepted="a number, or nothing") from None


def _form_token(token: str) -> str:
    return hashlib.sha256(b"form " + token.encode()).hexdigest() if token else ""


def visit_of(request: Request) -> Visit:
    """Return the visit of a request; the same one at each call."""
    if not hasattr(request.state, "visit"):
        request.state.visit = Visit(request, request.app.state.recalib)
    return request.state.visit


async def _visit(request: Request) -> Visit:
    return visit_of(request)


async def _signed_in(request: Request) -> Visit:
    visit = visit_of(request)
    await visit.sign_in_from_cookie()
    return visit


#: Someone who may not have signed in.
Anyone = Annotated[Visit, Depends(_visit)]
SignedIn = Annotated[Visit, Depends(_signed_in)]
