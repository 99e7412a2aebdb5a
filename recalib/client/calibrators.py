"""Calibrators and aliases: fit, get, download, promote and roll back."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from recalib.client.drivers import Listing
from recalib.client.operations import Flow, Request, Session
from recalib.client.results import Alias, AliasChange, Calibrator, Items, Job, Page
from recalib.client.retry import fetch, idempotency_headers, path, send_checked
from recalib.errors import InputError, NotFoundError

__all__ = [
    "CHAMPION",
    "alias_history",
    "download_calibrator",
    "fit",
    "get_calibrator",
    "list_aliases",
    "list_calibrators",
    "promote",
    "resolve_version",
    "rollback",
]

#: The alias that serves by default.
CHAMPION = "champion"
#: Suffix of the destination to the resource that is downloaded.
_DOWNLOADS = {".calib": "parameters", ".onnx": "onnx"}


def fit(
    session: Session,
    model: str,
    dataset: str,
    *,
    map: str = "temperature",
    objective: str = "nll",
    options: Mapping[str, Any] | None = None,
    promote: bool | Literal["if_better"] = "if_better",
) -> Flow[Job]:
    """Fit a calibrator on an uploaded data set; return the job.

    Parameters
    ----------
    map, objective, options: as for `recalib.fit`.
    promote: whether the new version becomes the champion: always, never, or only if its
        cross-validated NLL is clearly better than that of the current champion.

    Raises
    ------
    RefusedError: the map, objective or an option is unknown.
    MissingError: no such model or data set.
    """
    body = {
        "dataset": dataset,
        "map": map,
        "objective": objective,
        "options": dict(options or {}),
        "promote": promote,
    }
    place = path("models", model, "calibrators")
    return fetch(session, Job, "POST", place, json=body, headers=idempotency_headers())


def list_calibrators(model: str) -> Listing[Calibrator]:
    """Iterate over a model's calibrators, by version."""
    return Listing(Page[Calibrator], path("models", model, "calibrators"))


def get_calibrator(
    session: Session, model: str, calibrator: int | str = CHAMPION
) -> Flow[Calibrator]:
    """Return a calibrator by version or alias.

    Raises
    ------
    MissingError: no such model or version.
    NotFoundError: no such alias.
    """
    version = yield from resolve_version(session, model, calibrator)
    place = path("models", model, "calibrators", str(version))
    return (yield from fetch(session, Calibrator, "GET", place))


def download_calibrator(
    session: Session,
    model: str,
    destination: str | PathLike[str],
    calibrator: int | str = CHAMPION,
) -> Flow[int]:
    """Download a calibrator to a file, atomically, and return its version.

    Parameters
    ----------
    destination: a `.calib` file gets the parameters, which `recalib.load` reads; an `.onnx` file
        gets a graph from `logits` to `probabilities`.

    Raises
    ------
    InputError: the suffix is unknown, or the file cannot be written.
    """
    from recalib.files import write_atomically

    target = Path(destination)
    if target.suffix not in _DOWNLOADS:
        accepted = f"a name that ends in {' or '.join(_DOWNLOADS)}"
        raise InputError("destination", found=str(target), accepted=accepted)
    version = yield from resolve_version(session, model, calibrator)
    place = path("models", model, "calibrators", str(version), _DOWNLOADS[target.suffix])
    response = yield from send_checked(session, Request("GET", place))
    write_atomically(target, response.body)
    return version


def list_aliases(session: Session, model: str) -> Flow[list[Alias]]:
    """Return a model's aliases."""
    aliases = yield from fetch(session, Items[Alias], "GET", path("models", model, "aliases"))
    return aliases.items


def promote(
    session: Session, model: str, version: int, *, alias: str = CHAMPION, reason: str = ""
) -> Flow[Alias]:
    """Point an alias at a version; every later request uses it.

    Parameters
    ----------
    reason: for the alias' history.

    Raises
    ------
    MissingError: no such model or version.
    """
    body = {"version": version, "reason": reason}
    url_path = path("models", model, "aliases", alias)
    # With the idempotency key, a retry does not undo a promotion that happened in between.
    return fetch(session, Alias, "PUT", url_path, json=body, headers=idempotency_headers())


def rollback(
    session: Session, model: str, *, alias: str = CHAMPION, reason: str = "rolled back"
) -> Flow[Alias]:
    """Point an alias at its previous version; a second rollback returns to the current one.

    Raises
    ------
    NotFoundError: the alias has no previous version.
    """
    changes = yield from alias_history(session, model, alias=alias, limit=1)
    previous = changes[0].from_version if changes else None
    if previous is None:
        raise NotFoundError("an earlier version of alias", alias)
    return (yield from promote(session, model, previous, alias=alias, reason=reason))


def alias_history(
    session: Session, model: str, *, alias: str = CHAMPION, limit: int = 100
) -> Flow[list[AliasChange]]:
    """Return the latest `limit` changes of an alias, newest first."""
    place = path("models", model, "aliases", alias, "history")
    query = {"limit": str(limit)}
    return (yield from fetch(session, Items[AliasChange], "GET", place, query=query)).items


def resolve_version(session: Session, model: str, calibrator: int | str) -> Flow[int]:
    """Return the version of an alias; a version is returned unchanged."""
    if isinstance(calibrator, int) or calibrator.isdecimal():
        return int(calibrator)
    aliases = yield from list_aliases(session, model)
    for alias in aliases:
        if alias.alias == calibrator:
            return alias.version
    raise NotFoundError("alias", calibrator, f"model {model!r} has " + _alias_names(aliases))


def _alias_names(aliases: list[Alias]) -> str:
    return ", ".join(repr(alias.alias) for alias in aliases) or "none; promote a version"
