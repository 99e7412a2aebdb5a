"""The keys that an issuer signs its tokens with, fetched now and then and kept for a while."""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, cast

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from recalib.errors import UnavailableError
from service.access.oidc import OidcConfig, is_trusted

__all__ = ["IssuerKeys"]

log = logging.getLogger(__name__)

#: How often keys are fetched anew: one that the issuer has given up is refused after so long.
_REFRESH_SECONDS = 300.0
#: At most so often, whatever key ids tokens name: anybody can make up one.
_SELDOM_SECONDS = 10.0
#: What an issuer may say, how long it may take for all of it, and how many keys it may have.
_MOST_BYTES = 256 * 1024
_MOST_SECONDS = 10.0
_MOST_KEYS = 100
_WELL_KNOWN = "/.well-known/openid-configuration"


class IssuerKeys:
    """Public keys by id and algorithm; safe to use from threads.

    `look` asks the issuer, and has to be called where waiting is allowed; everything else answers
    from what it found last. Keys that cannot be fetched again are good for `Oidc.keys_seconds`.

    Parameters
    ----------
    clock: in seconds, which never goes back.
    """

    def __init__(self, oidc: OidcConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._oidc = oidc
        self._clock = clock
        self._keys: Mapping[tuple[str | None, str], PyJWK] = {}
        #: The id of a key that is the only one: tokens need not name it.
        self._only: str | None = None
        self._said: Any = None
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = "it has not been asked yet"
        #: Counts the changes of keys: what was found good by older ones may no longer be.
        self.changes = 0

    def __len__(self) -> int:
        return len({id for id, _ in self._keys})

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again, though no token asks for it."""
        good = self._fetched_at is not None and self._fetched_at == self._tried_at
        return self._past(self._tried_at, _REFRESH_SECONDS if good else _SELDOM_SECONDS)

    def check_fresh(self) -> None:
        """Return if keys are good; `UnavailableError` where there are none, or they are too old."""
        if self._fetched_at is None:
            raise UnavailableError(f"tokens cannot be checked yet: {self._failure}")
        if self._past(self._fetched_at, self._oidc.keys_seconds):
            raise UnavailableError(f"tokens cannot be checked any more: {self._failure}")

    def find(self, id: str | None, algorithm: str) -> PyJWK | None:
        """Return a key for an algorithm by its id, which may be left out where there is but one.

        Raises
        ------
        UnavailableError: it is not there, and the issuer could not be asked for it.
        """
        self.check_fresh()
        key = self._keys.get((self._named(id), algorithm))
        if key is None and not self.knows(id) and self._tried_at != self._fetched_at:
            raise UnavailableError(f"the token's key is not known here: {self._failure}")
        return key

    def knows(self, id: str | None) -> bool:
        """Return whether there is a key of that id, for whatever algorithm."""
        id = self._named(id)
        return any((id, one) in self._keys for one in self._oidc.algorithms)

    def wants(self, id: str | None) -> bool:
        """Return whether to look now for a key that is not known."""
        return not self.knows(id) and self._past(self._tried_at, _SELDOM_SECONDS)

    def look(self) -> None:
        """Fetch the keys; `UnavailableError` where that fails, and those there are stay."""
        try:
            said = self._fetched()
            keys = self._read(said)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self._failure = f"the issuer {self._oidc.issuer} cannot be asked for its keys ({error})"
            self._tried_at = self._clock()
            log.warning("%s", self._failure, extra={"action": "issuer_failed"})
            raise UnavailableError(self._failure) from None
        if said != self._said:
            ids = {id for id, _ in keys}
            self._keys, self._only = keys, next(iter(ids)) if len(ids) == 1 else None
            self._said = said
            self.changes += 1
        self._tried_at = self._fetched_at = self._clock()

    def _named(self, id: str | None) -> str | None:
        return self._only if id is None else id

    def _past(self, since: float | None, seconds: float) -> bool:
        return since is None or self._clock() - since >= seconds

    def _fetched(self) -> Any:
        url = self._oidc.jwks_url
        if not url:
            described = _get(self._oidc.issuer.rstrip("/") + _WELL_KNOWN)
            if not isinstance(described, dict) or described.get("issuer") != self._oidc.issuer:
                raise ValueError("its description is of another issuer")
            url = str(described.get("jwks_uri"))
            if not is_trusted(url):
                raise ValueError(f"its description names its keys' place as {url[:200]!r}")
        return _get(url)

    def _read(self, said: Any) -> Mapping[tuple[str | None, str], PyJWK]:
        given = said.get("keys") if isinstance(said, dict) else None
        if not isinstance(given, list) or len(given) > _MOST_KEYS:
            raise ValueError(f"found no list of at most {_MOST_KEYS} keys")
        found: dict[tuple[str | None, str], PyJWK] = {}
        for one in given:
            # For encryption, or of a kind that is not ours: others may have use for it.
            if not isinstance(one, dict) or one.get("use", "sig") != "sig":
                continue
            for algorithm in self._oidc.algorithms:
                key = _key(one, algorithm)
                if key is not None:
                    found.setdefault((key.key_id, algorithm), key)
        if not found:
            raise ValueError("it has no key for an algorithm that is allowed")
        return found


def _key(given: dict[str, Any], algorithm: str) -> PyJWK | None:
    if given.get("alg", algorithm) != algorithm or not isinstance(given.get("kid", ""), str):
        return None
    try:
        return PyJWK(given, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):  # it is for another algorithm, or is none
        return None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: where keys are is said by whom we trust, or not at all."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(url: str) -> Any:
    """Return the JSON at a URL that is http or https."""
    ends = time.monotonic() + _MOST_SECONDS
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    content = bytearray()
    opener = urllib.request.build_opener(_Stay)
    with opener.open(request, timeout=_MOST_SECONDS / 2) as answer:
        while piece := cast("bytes", answer.read1(2**16)):
            content += piece
            if len(content) > _MOST_BYTES or time.monotonic() > ends:
                raise ValueError(f"{url} says too much, or too slowly")
    return json.loads(content)
