"""Operations on evaluations, independent of the transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any

from recalib import registry
from recalib.contract.evaluations import Evaluation, EvaluationPage
from recalib.contract.jobs import Job
from recalib.errors import InputError, NotFoundError
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import EVALUATE
from service.access.authenticator import current_principal
from service.access.visible_jobs import job_of_model
from service.evaluations.schemas import MAX_VERSIONS, EvaluationCreate
from service.idempotency import run_once
from service.pagination import decode_number, next_cursor
from service.versions import resolve_version

_IDENTITY = "identity"


def create_evaluation(
    tx: Transaction, model: str, request: EvaluationCreate, key: str | None
) -> Job:
    """Enqueue an evaluation. Aliases mean the versions that they point to now.

    Raises
    ------
    InputError: a version twice, or a version that cannot take the rows.
    NotFoundError: no such model, data set or version.
    ConflictError: `key` was used with another request.
    """
    owner = tx.models.get(model)

    def act() -> Job:
        tx.models.hold(owner)
        dataset = tx.datasets.get(owner, request.dataset)
        versions = _versions(tx, owner, dataset, request)
        payload = {"model": owner.name, "dataset": dataset.name, "versions": versions}
        job = tx.jobs.enqueue(EVALUATE, payload, model=owner)
        detail = f"{', '.join(map(str, versions))} on {dataset.name}"
        tx.audit.record(current_principal().name, "create_evaluation", owner.name, job.id, detail)
        return Job.model_validate(job)

    return run_once(tx, key, f"create_evaluation {model}", request, 202, Job, act)


def list_evaluations(tx: Transaction, model: str, limit: int, cursor: str | None) -> EvaluationPage:
    """Return a page of a model's evaluations without their pictures, newest first."""
    owner = tx.models.get(model)
    jobs = tx.jobs.page(owner, None, decode_number(cursor), limit + 1, kind=EVALUATE)
    following = next_cursor(jobs, limit, lambda job: str(job.sequence))
    items = [_evaluation(job, {}) for job in jobs[:limit]]
    return EvaluationPage(items=items, next_cursor=following)


def get_evaluation(store: Registry, model: str, id: str) -> Evaluation:
    """Return the state and the results of an evaluation, or raise `NotFoundError`."""
    with store.reading() as tx:
        job = job_of_model(tx, model, EVALUATE, id)
    return _evaluation(job, _content(store, job) if job.result else {})


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
    page: str = _content(store, job)["report"]
    return page


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


def _evaluation(job: registry.Job, content: Mapping[str, Any]) -> Evaluation:
    """Return the wire form of an evaluation job; `content` is its file, empty in lists."""
    result = job.result or {}
    labels = chain(content.get("labels", ()), repeat(()))
    return Evaluation.model_validate(
        {
            **vars(job),
            "dataset": job.payload["dataset"],
            "versions": [str(version) for version in job.payload["versions"]],
            "rows": result.get("rows"),
            "results": [
                {**item, "labels": of_version}
                for item, of_version in zip(result.get("results", ()), labels, strict=False)
            ],
            "warnings": result.get("warnings", []),
            "pictures": content.get("pictures", []),
        }
    )
