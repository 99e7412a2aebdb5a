"""Operations on evaluations, independent of the transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any

from anyio import to_thread

from recalib import registry
from recalib.contract.evaluations import Evaluation
from recalib.contract.jobs import Job
from recalib.errors import InputError, NotFoundError
from recalib.files import MEDIA_TYPES
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import EVALUATE
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue, job_of_model
from service.evaluations.schemas import MAX_VERSIONS, EvaluationCreate
from service.reader_pool import reader_pool
from service.upload_checks import check_columns
from service.uploads import QUICK_NUMBERS, read_seconds
from service.versions import resolve_version

_IDENTITY = "identity"
#: Of each version in the file of an evaluation.
_LISTS = ("labels", "segments")


async def check_segments(store: Registry, model: str, dataset: str, names: list[str]) -> None:
    """Read columns of segments of a data set, in a reader process.

    Raises
    ------
    InputError: a column twice, or missing; values that are no segments, or too many; a data set by
        reference, of a multilabel model, or in a format without other columns.
    NotFoundError: no such model or data set.
    """

    def find() -> registry.Dataset:
        with store.reading() as tx:
            owner = tx.models.get(model)
            data = tx.datasets.get(owner, dataset)
        if owner.is_multilabel or data.uri is not None:
            found = "a multilabel model" if owner.is_multilabel else f"data at {data.uri}"
            raise InputError("segments", found=found, accepted="an upload of one label a row")
        return data

    if len(set(names)) < len(names):
        raise InputError("segments", found=", ".join(names), accepted="each column once")
    data = await to_thread.run_sync(find)
    seconds, is_slow = read_seconds(data.size_bytes), data.size_bytes > 8 * QUICK_NUMBERS
    where = {"url": store.blobs.location(data.digest), "format": MEDIA_TYPES[data.media_type]}
    await reader_pool().run(
        check_columns, seconds=seconds, is_slow=is_slow, names=names, rows=data.rows, **where
    )


def request_evaluation(tx: Transaction, model: Model, request: EvaluationCreate) -> Job:
    """Enqueue an evaluation. Aliases mean the versions that they point to now.

    Raises
    ------
    InputError: a version twice, or a version that cannot take the rows.
    NotFoundError: no such data set or version.
    """
    tx.models.hold(model)
    dataset = tx.datasets.get(model, request.dataset)
    versions = _versions(tx, model, dataset, request)
    payload = {"model": model.name, "dataset": dataset.name, "versions": versions}
    payload |= {"segments": request.segments} if request.segments else {}
    job = enqueue(tx, EVALUATE, payload, model=model)
    detail = f"{', '.join(map(str, versions))} on {dataset.name}"
    tx.audit.record(current_principal().name, "create_evaluation", model.name, job.id, detail)
    return Job.model_validate(job)


def get_evaluation(store: Registry, model: str, id: str) -> Evaluation:
    """Return the state and the results of an evaluation, or raise `NotFoundError`."""
    with store.reading() as tx:
        job = job_of_model(tx, model, EVALUATE, id)
    return evaluation_of(job, _content(store, job) if job.result else {})


def get_evaluation_report(store: Registry, model: str, id: str) -> str:
    """Return the HTML page of an evaluation.

    Raises
    ------
    NotFoundError: no such evaluation, or it has not succeeded.
    """
    with store.reading() as tx:
        job = job_of_model(tx, model, EVALUATE, id)
    if job.result is None:
        raise NotFoundError("report of evaluation", id, hint=f"the evaluation is {job.state}")
    return _content(store, job)["report"]


def _versions(
    tx: Transaction, model: Model, dataset: registry.Dataset, request: EvaluationCreate
) -> list[int | str]:
    """Return the numbers of the versions, the baseline first; `identity` stays."""

    def number(name: int | str, field: str) -> int | str:
        if name == _IDENTITY:
            return name
        return resolve_version(tx, model, name, dataset.input, field)

    versions: list[int | str] = []
    for index, name in enumerate(request.versions):
        field = f"versions[{index}]"
        version = number(name, field)
        if version in versions:
            found = f"{name}, which is {version} as well" if name != version else str(version)
            raise InputError(field, found=found, accepted="each version once")
        versions.append(version)
    if request.baseline is None:
        return versions
    baseline = number(request.baseline, "baseline")
    others = [version for version in versions if version != baseline]
    if len(others) == MAX_VERSIONS:
        accepted = f"at most {MAX_VERSIONS} with the baseline"
        raise InputError("versions", found=f"{MAX_VERSIONS} and a baseline", accepted=accepted)
    return [baseline, *others]


def _content(store: Registry, job: registry.Job) -> dict[str, Any]:
    """Return the file of an evaluation that has succeeded."""
    (file,) = (job.result or {})["files"].values()
    with store.blobs.open(file["digest"]) as blob:
        content: dict[str, Any] = json.load(blob)
    return content


def evaluation_of(job: registry.Job, content: Mapping[str, Any]) -> Evaluation:
    """Return the wire form of an evaluation job; `content` is its file, empty in lists."""
    result = job.result or {}
    lists = [chain(content.get(name, ()), repeat(())) for name in _LISTS]
    return Evaluation.model_validate(
        {
            **vars(job),
            "dataset": job.payload["dataset"],
            "versions": [str(version) for version in job.payload["versions"]],
            "segments": job.payload.get("segments", []),
            "rows": result.get("rows"),
            "results": [
                {**item, **dict(zip(_LISTS, of_version, strict=True))}
                for item, *of_version in zip(result.get("results", ()), *lists, strict=False)
            ],
            "warnings": result.get("warnings", []),
            "pictures": content.get("pictures", []),
        }
    )
