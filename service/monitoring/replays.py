"""Logs of the past that are loaded into monitoring, and labels that other settings are tried on."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable
from typing import Any

import msgspec
from anyio import to_thread
from pydantic import BaseModel, RootModel

from recalib.contract.base import utc
from recalib.contract.jobs import Job
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.watched_classes import watched_indices
from recalib.errors import ConflictError, InputError
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import REPLAY
from recalib.replay import LogSummary, ModelLogOptions
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue
from service.idempotency import run_once
from service.serving.loaded_calibrators import CHAMPION
from service.upload_checks import count_log_numbers, survey_log
from service.uploads import read_upload, receive, store_once
from service.versions import find_version

#: How far a clock may be ahead of that of the database.
_SKEW_SECONDS = 300.0


class _Upload(BaseModel):
    """A request with a log, which an idempotency key stands for."""

    version: int | str
    to_now: bool
    digest: str


async def upload_replay(
    store: Registry,
    model: str,
    version: int | str,
    to_now: bool,
    pieces: AsyncIterable[bytes],
    key: str | None,
) -> Job:
    """Receive a log of predictions, and enqueue its replay.

    The reader process checks every row before this returns.

    Parameters
    ----------
    version: a number, also as text, or an alias.
    to_now: whether the times of the log move forward, so that it ends now.
    pieces: the bytes of a Parquet or CSV file, in order.

    Raises
    ------
    InputError: an empty body, or a log that is not valid for the model.
    NotFoundError: no such model or version.
    ConflictError: the version has monitoring state, or `key` was used with another request.
    """

    def check() -> Model:
        with store.reading() as tx:
            owner = tx.models.get(model)
            find_version(tx, owner, version, "version")
        return owner

    def act(tx: Transaction, digest: str) -> Job:
        owner = tx.models.get(model)
        tx.models.hold(owner)
        now, shift = tx.clock(), 0.0
        if to_now:
            length = owner.monitoring.cohort_seconds
            shift = math.floor((now - summary.end) / length) * length
        elif summary.end > now + _SKEW_SECONDS:
            found = f"{_iso(summary.end)}, in the future"
            raise InputError("time", found=found, accepted=f"times until {_iso(now)}")
        number = _check_version(tx, owner, version, summary.through + shift)
        return _enqueue(tx, owner, number, digest, shift, summary)

    owner = await to_thread.run_sync(check)
    with store.blobs.writer() as blob:
        await receive(pieces, blob, "predictions")
        options = msgspec.to_builtins(_options(owner))
        summary = LogSummary(
            *await read_upload(survey_log, blob, count_log_numbers, {}, options=options)
        )
        request = _Upload(version=version, to_now=to_now, digest=blob.digest)
        scope = f"create_replay {model}"
        return await to_thread.run_sync(store_once, store, blob, key, scope, request, act)


def request_settings_replay(
    store: Registry, model: str, settings: MonitoringSettings, key: str | None
) -> Job:
    """Enqueue the replay of a champion's retained labels with other settings; they are not set.

    Raises
    ------
    NotFoundError: no such model.
    ConflictError: the segments change their numbers, the model has no champion, or `key` was used
        with another request.
    """
    with store.transaction() as tx:
        owner = tx.models.get(model)
        owner.monitoring.check_change(settings)
        champion = tx.aliases.find(owner, CHAMPION)
        if champion is None:
            raise ConflictError(f"model {model!r} has no champion, whose labels could be replayed")
        payload = {"model": model, "version": champion.version, "settings": settings.to_dict()}

        def act() -> Job:
            return Job.model_validate(enqueue(tx, REPLAY, payload, model=owner))

        request = RootModel[MonitoringSettings](settings)
        return run_once(tx, key, f"replay_settings {model}", request, 202, Job, act)


def _check_version(tx: Transaction, model: Model, name: int | str, through: float) -> int:
    """Return the number of a version that a log until `through` can be replayed into."""
    number = find_version(tx, model, name, "version")
    tx.calibrators.get(model, number)  # it may be deleted
    tx.monitors.check_replay(model, number, through)
    return number


def _options(model: Model) -> ModelLogOptions:
    monitoring = model.monitoring
    watched = monitoring.classes
    return ModelLogOptions(
        classes=model.classes,
        cohort_seconds=monitoring.cohort_seconds,
        maturity_seconds=monitoring.maturity_seconds,
        segments=("", *monitoring.segments),
        watched=watched_indices(watched, model.classes, model.labels) if watched else (),
        task=model.task,
        class_names=model.labels or (),
    )


def _enqueue(
    tx: Transaction, model: Model, version: int, digest: str, shift: float, summary: LogSummary
) -> Job:
    payload: dict[str, Any] = {
        "model": model.name,
        "version": version,
        "rows": summary.rows,
        "digest": digest,
        "shift_seconds": shift,
    }
    job = enqueue(tx, REPLAY, payload, model=model, checkpoint={"upload": digest})
    start, end = _iso(summary.start + shift), _iso(summary.end + shift)
    detail = f"version {version}: {summary.rows} rows from {start} to {end}, sha256 {digest}"
    tx.audit.record(current_principal().name, "create_replay", model.name, job.id, detail)
    return Job.model_validate(job)


def _iso(seconds: float) -> str:
    return utc(seconds).isoformat(timespec="milliseconds")
