"""Calibrators: asking for a fit, looking at what came of it, and which version serves."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from recalib.client.drivers import Listing
from recalib.client.operations import Plan, Request, Session
from recalib.client.results import Alias, AliasChange, Calibrator, Items, Job, Page
from recalib.client.retry import fetch, new_key, path, succeed
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
    "rollback",
    "version_of",
]

#: The alias that serves by default.
CHAMPION = "champion"
#: The end of a file's name, to what is downloaded into it.
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
) -> Plan[Job]:
    """Ask for a calibrator fitted on an uploaded data set; return the job that does it.

    Parameters
    ----------
    map, objective, options: as `recalib.fit` has them.
    promote: whether the new version becomes the champion: always, never, or if its
        cross-validated NLL is clearly better than what serves now.

    Raises
    ------
    RefusedError: an unknown map, objective or option.
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
    return fetch(session, Job, "POST", place, json=body, headers=new_key())


def list_calibrators(model: str) -> Listing[Calibrator]:
    """Iterate over a model's calibrators, by version."""
    return Listing(Page[Calibrator], path("models", model, "calibrators"))


def get_calibrator(
    session: Session, model: str, calibrator: int | str = CHAMPION
) -> Plan[Calibrator]:
    """Return a version's card, or that of the version that an alias points to.

    Raises
    ------
    MissingError: no such model or version.
    NotFoundError: no such alias.
    """
    version = yield from version_of(session, model, calibrator)
    place = path("models", model, "calibrators", str(version))
    return (yield from fetch(session, Calibrator, "GET", place))


def download_calibrator(
    session: Session,
    model: str,
    destination: str | PathLike[str],
    calibrator: int | str = CHAMPION,
) -> Plan[int]:
    """Write a calibrator to a file, whole or not at all, and return its version.

    Parameters
    ----------
    destination: ends in `.calib` for the parameters, as `recalib.load` reads them, or in `.onnx`
        for a graph from `logits` to `probabilities`.

    Raises
    ------
    InputError: another name, or a file that cannot be written.
    """
    from recalib.files import write_atomically

    target = Path(destination)
    if target.suffix not in _DOWNLOADS:
        accepted = f"a name that ends in {' or '.join(_DOWNLOADS)}"
        raise InputError("destination", found=str(target), accepted=accepted)
    version = yield from version_of(session, model, calibrator)
    place = path("models", model, "calibrators", str(version), _DOWNLOADS[target.suffix])
    answer = yield from succeed(session, Request("GET", place))
    write_atomically(target, answer.body)
    return version


def list_aliases(session: Session, model: str) -> Plan[list[Alias]]:
    """Return a model's aliases."""
    found = yield from fetch(session, Items[Alias], "GET", path("models", model, "aliases"))
    return found.items


def promote(
    session: Session, model: str, version: int, *, alias: str = CHAMPION, reason: str = ""
) -> Plan[Alias]:
    """Point an alias at a version; every request after the answer sees it.

    Parameters
    ----------
    reason: kept in the alias' history.

    Raises
    ------
    MissingError: no such model or version.
    """
    body = {"version": version, "reason": reason}
    where = path("models", model, "aliases", alias)
    # Sent again after an answer was lost, it does not undo what somebody has done meanwhile.
    return fetch(session, Alias, "PUT", where, json=body, headers=new_key())


def rollback(
    session: Session, model: str, *, alias: str = CHAMPION, reason: str = "rolled back"
) -> Plan[Alias]:
    """Point an alias at the version that it pointed to before; twice is back and forth.

    Raises
    ------
    NotFoundError: it has pointed to one version only.
    """
    changes = yield from alias_history(session, model, alias=alias, limit=1)
    before = changes[0].from_version if changes else None
    if before is None:
        raise NotFoundError("an earlier version of alias", alias)
    return (yield from promote(session, model, before, alias=alias, reason=reason))


def alias_history(
    session: Session, model: str, *, alias: str = CHAMPION, limit: int = 100
) -> Plan[list[AliasChange]]:
    """Return who moved an alias, when, where to and why: the latest `limit` times, newest first."""
    place = path("models", model, "aliases", alias, "history")
    query = {"limit": str(limit)}
    return (yield from fetch(session, Items[AliasChange], "GET", place, query=query)).items


def version_of(session: Session, model: str, calibrator: int | str) -> Plan[int]:
    """Return the version that an alias points to now, or `calibrator` where it is a version."""
    if isinstance(calibrator, int) or calibrator.isdecimal():
        return int(calibrator)
    aliases = yield from list_aliases(session, model)
    for one in aliases:
        if one.alias == calibrator:
            return one.version
    raise NotFoundError("alias", calibrator, f"model {model!r} has " + _listed(aliases))


def _listed(aliases: list[Alias]) -> str:
    return ", ".join(repr(one.alias) for one in aliases) or "none; promote a version"
