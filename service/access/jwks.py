"""The signing keys of a token issuer (JSON Web Key Set), fetched and cached."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from recalib.errors import UnavailableError
from service.access.issuer_requests import fetch_json
from service.access.oidc import OidcConfig, is_trusted

log = logging.getLogger(__name__)

#: Interval of the regular refresh: a key that the issuer withdraws is refused after this time.
_REFRESH_SECONDS = 300.0
#: Least time between two requests to the issuer: any client can send unknown key ids.
_MIN_INTERVAL_SECONDS = 10.0
_MAX_KEYS = 100
_WELL_KNOWN = "/.well-known/openid-configuration"


class IssuerKeys:
    """Public keys by id and algorithm; safe to use from threads.

    Only `refresh` contacts the issuer, and it blocks; all other methods use the keys of the last
    refresh. If a refresh fails, these stay valid for `OidcConfig.keys_seconds`.

    Parameters
    ----------
    clock: monotonic, in seconds.
    """

    def __init__(self, oidc: OidcConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._oidc = oidc
        self._clock = clock
        self._keys: Mapping[tuple[str | None, str], PyJWK] = {}
        #: The id of the key if there is only one: tokens need not name it.
        self._single_id: str | None = None
        self._document: Any = None
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = "its keys have not been requested yet"
        #: The issuer's description of itself; empty until it is fetched.
        self.metadata: Mapping[str, Any] = {}
        #: Number of key changes: a token that older keys verified may no longer be valid.
        self.changes = 0

    def __len__(self) -> int:
        return len({id for id, _ in self._keys})

    @property
    def is_due(self) -> bool:
        """Whether the regular refresh interval has passed."""
        succeeded = self._fetched_at is not None and self._fetched_at == self._tried_at
        return self._is_past(
            self._tried_at, _REFRESH_SECONDS if succeeded else _MIN_INTERVAL_SECONDS
        )

    def check_fresh(self) -> None:
        """Raise `UnavailableError` if no keys have been fetched, or they are too old."""
        if self._fetched_at is None:
            raise UnavailableError(f"tokens cannot be checked yet: {self._failure}")
        if self._is_past(self._fetched_at, self._oidc.keys_seconds):
            raise UnavailableError(f"tokens cannot be checked any more: {self._failure}")

    def find(self, id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key of an id and an algorithm, or None; without an id, the only key.

        Raises
        ------
        UnavailableError: the key is unknown, and the last request to the issuer failed.
        """
        self.check_fresh()
        key = self._keys.get((self._resolve_id(id), algorithm))
        if key is None and not self.knows(id) and self._tried_at != self._fetched_at:
            raise UnavailableError(f"the token's key is not known here: {self._failure}")
        return key

    def knows(self, id: str | None) -> bool:
        """Return whether a key has this id, for any algorithm."""
        id = self._resolve_id(id)
        return any((id, algorithm) in self._keys for algorithm in self._oidc.algorithms)

    def should_refresh(self, id: str | None) -> bool:
        """Return whether a key is unknown and it may be requested from the issuer now."""
        return not self.knows(id) and self._is_past(self._tried_at, _MIN_INTERVAL_SECONDS)

    def refresh(self) -> None:
        """Fetch the keys; on failure raise `UnavailableError` and keep the old ones."""
        try:
            document = self._fetch()
            keys = self._parse(document)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self._failure = f"the issuer {self._oidc.issuer} does not return its keys ({error})"
            self._tried_at = self._clock()
            log.warning("%s", self._failure, extra={"action": "issuer_failed"})
            raise UnavailableError(self._failure) from None
        if document != self._document:
            ids = {id for id, _ in keys}
            self._keys, self._single_id = keys, next(iter(ids)) if len(ids) == 1 else None
            self._document = document
            self.changes += 1
        self._tried_at = self._fetched_at = self._clock()

    def _resolve_id(self, id: str | None) -> str | None:
        return self._single_id if id is None else id

    def _is_past(self, since: float | None, seconds: float) -> bool:
        return since is None or self._clock() - since >= seconds

    def _fetch(self) -> Any:
        url = self._oidc.jwks_url
        if not url or self._oidc.client_id:
            metadata = fetch_json(self._oidc.issuer.rstrip("/") + _WELL_KNOWN)
            if not isinstance(metadata, dict) or metadata.get("issuer") != self._oidc.issuer:
                raise ValueError("its description is of another issuer")
            places = [] if url else ["jwks_uri"]
            if self._oidc.client_id:
                places += ["authorization_endpoint", "token_endpoint"]
            for name in places:
                place = str(metadata.get(name))
                if not is_trusted(place):
                    raise ValueError(f"its description has {name} {place[:200]!r}")
            self.metadata, url = metadata, url or str(metadata["jwks_uri"])
        return fetch_json(url)

    def _parse(self, document: Any) -> Mapping[tuple[str | None, str], PyJWK]:
        items = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(items, list) or len(items) > _MAX_KEYS:
            raise ValueError(f"found no list of at most {_MAX_KEYS} keys")
        keys: dict[tuple[str | None, str], PyJWK] = {}
        for item in items:
            # Encryption keys and unknown kinds are valid in a key set, but not used here.
            if not isinstance(item, dict) or item.get("use", "sig") != "sig":
                continue
            for algorithm in self._oidc.algorithms:
                key = _key(item, algorithm)
                if key is not None:
                    keys.setdefault((key.key_id, algorithm), key)
        if not keys:
            raise ValueError("it has no key for an algorithm that is allowed")
        return keys


def _key(item: dict[str, Any], algorithm: str) -> PyJWK | None:
    if item.get("alg", algorithm) != algorithm or not isinstance(item.get("kid", ""), str):
        return None
    try:
        return PyJWK(item, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):  # for another algorithm, or invalid
        return None
