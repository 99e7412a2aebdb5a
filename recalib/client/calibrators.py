"""Calibrators and aliases: fit, get, download, promote and roll back."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from recalib.client.downloads import save
from recalib.client.drivers import Listing
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path, without_none
from recalib.contract.base import Items, Page
from recalib.contract.calibrators import Alias, AliasChange, Calibrator
from recalib.contract.jobs import Job
from recalib.core.card import SetGroups, SetMethod
from recalib.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from recalib.calibrator import Calibrator as FittedCalibrator

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
    sets: SetMethod | None = None,
    coverage: float | None = None,
    sets_by: SetGroups = "all",
    sets_folds: int | None = None,
    sets_penalty: float | None = None,
    sets_k_reg: int | None = None,
    max_risk: float | None = None,
    resampled: Mapping[str, Sequence[float] | str] | None = None,
    promote: bool | Literal["if_better"] = "if_better",
    force: bool = False,
) -> Flow[Job]:
    """Fit a calibrator on an uploaded data set; return the job.

    Parameters
    ----------
    map, objective, options, sets, coverage, sets_folds, max_risk: as for `recalib.fit`.
    sets_by, sets_penalty, sets_k_reg: as `by`, `penalty` and `k_reg` of `recalib.sets.SetOptions`.
    resampled: `{"class_weight": ...}` as for `recalib.fit`; the rows of the data set are as in use.
    promote: whether the new version becomes the champion: always, never, or only if its
        cross-validated NLL is clearly better than that of the current champion.
    force: promote also if the rows do not look like logits of the model.

    Raises
    ------
    InvalidRequestError: the map, objective or an option is unknown.
    ResourceNotFoundError: no such model or data set.
    """
    body = without_none(
        dataset=dataset,
        map=map,
        objective=objective,
        options=dict(options or {}),
        sets=sets,
        coverage=coverage,
        sets_by=None if sets_by == "all" else sets_by,
        sets_folds=sets_folds,
        sets_penalty=sets_penalty,
        sets_k_reg=sets_k_reg,
        max_risk=max_risk,
        resampled=resampled,
        promote=promote,
        force=force or None,
    )
    return fetch(session, Job, "POST", path("models", model, "calibrators"), json=body)


def publish(
    session: Session,
    model: str,
    calibrator: str | PathLike[str] | FittedCalibrator,
    dataset: str | None = None,
    *,
    fitted_on: str | PathLike[str] | ArrayLike | None = None,
    promote: bool | Literal["if_better"] = "if_better",
    force: bool = False,
) -> Flow[Job]:
    """Publish a calibrator that was fitted elsewhere as a version; return the job.

    The metrics of its card are shown as claims.

    Parameters
    ----------
    calibrator: a `.calib` file, or a result of `recalib.fit`.
    dataset: an uploaded data set to compare it with the champion on, without the rows that either
        was fitted on.
    fitted_on: the file or the array (N, K) that it was fitted on. Only digests of its rows are
        sent. Not needed if the same file is a data set of the model.
    promote, force: as for `fit`. `if_better` needs 100 rows that neither was fitted on.

    Raises
    ------
    InputError: the file cannot be read, or `fitted_on` is other data than the card states.
    InvalidRequestError: the server rejects the calibrator.
    ResourceNotFoundError: no such model or data set.
    """
    from recalib.calibrator import Calibrator as FittedCalibrator

    if not isinstance(calibrator, FittedCalibrator):
        calibrator = FittedCalibrator.load(calibrator)
    digests = None if fitted_on is None else _base64(_row_digests(calibrator, fitted_on))
    body = without_none(
        parameters=_base64(calibrator.to_bytes()),
        dataset=dataset,
        row_digests=digests,
        promote=promote,
        force=force or None,
    )
    return fetch(session, Job, "POST", path("models", model, "calibrators"), json=body)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _row_digests(calibrator: FittedCalibrator, fitted_on: str | PathLike[str] | ArrayLike) -> bytes:
    """Return the digests of the rows that a calibrator was fitted on."""
    from recalib import files
    from recalib.core.inputs import score_matrix
    from recalib.fitting.row_digests import encode_digests, row_digests

    card = calibrator.card
    if isinstance(fitted_on, str | PathLike):
        source = Path(fitted_on)
        known = files.DataSelection(class_names=card.labels)
        values = files.read(
            source, input=card.input, task=card.task, selection=known, labels="optional"
        ).logits
        digest = files.digest(source)
        if card.data.digest not in (None, digest):
            accepted = f"the file of the fit, sha256 {card.data.digest}"
            raise InputError("fitted_on", found=f"sha256 {digest}", accepted=accepted)
    else:
        values = score_matrix(fitted_on, card.input, "fitted_on")
    if len(values) != card.data.rows:
        accepted = f"{card.data.rows}, as the card states"
        raise InputError("fitted_on", found=f"{len(values)} rows", accepted=accepted)
    return encode_digests(row_digests(values))


def list_calibrators(model: str) -> Listing[Calibrator]:
    """Iterate over a model's calibrators, by version."""
    return Listing(Page[Calibrator], path("models", model, "calibrators"))


def get_calibrator(
    session: Session, model: str, calibrator: int | str = CHAMPION
) -> Flow[Calibrator]:
    """Return a calibrator by version or alias.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
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
    target = Path(destination)
    if target.suffix not in _DOWNLOADS:
        accepted = f"a name that ends in {' or '.join(_DOWNLOADS)}"
        raise InputError("destination", found=str(target), accepted=accepted)
    version = yield from resolve_version(session, model, calibrator)
    place = path("models", model, "calibrators", str(version), _DOWNLOADS[target.suffix])
    yield from save(session, place, target)
    return version


def list_aliases(session: Session, model: str) -> Flow[list[Alias]]:
    """Return a model's aliases."""
    aliases = yield from fetch(session, Items[Alias], "GET", path("models", model, "aliases"))
    return aliases.items


def promote(
    session: Session,
    model: str,
    version: int,
    *,
    alias: str = CHAMPION,
    reason: str = "",
    force: bool = False,
) -> Flow[Alias]:
    """Point an alias at a version; every later request uses it.

    Parameters
    ----------
    reason: for the alias' history.
    force: promote also a version of rows that do not look like logits of the model.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
    ResourceConflictError: the version needs `force`.
    """
    body = without_none(version=version, reason=reason, force=force or None)
    return fetch(session, Alias, "PUT", path("models", model, "aliases", alias), json=body)


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
