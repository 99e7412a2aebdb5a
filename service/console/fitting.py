"""From a model to a version: create the model, upload its data, fit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import Response
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from recalib.contract.datasets import Dataset
from recalib.errors import ForbiddenError, InputError, RecalibError, TooLargeError
from recalib.files import MEDIA_TYPES, SUFFIXES
from recalib.fitting.auto import AUTO
from recalib.maps import MAPS
from recalib.maps.labels import LABEL_MAPS
from recalib.objectives import OBJECTIVES
from service.calibrators.rest import create_calibrator
from service.console.models import datasets_page
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import SignedIn, Visit, number_field
from service.datasets import handlers
from service.datasets.rest import list_datasets, upload_dataset
from service.models.rest import create_model, get_model

_PIECE_BYTES = 2**20
#: When to choose a map; the others are for readers of docs/maps.md.
_WHEN = {
    AUTO: "the best on held-out rows, or a mixture",
    "temperature": "few rows; changes no prediction",
    "vector": "a wrong base rate: each class has an intercept",
    "structured_matrix": "several classes and a thousand rows or more",
    "isotonic": "many rows, no formula",
    "venn_abers": "an interval for each probability",
    "platt": "independent labels, few rows",
}
_SETS = {
    "lac": "the smallest; may be empty",
    "aps": "cover hard rows more evenly, and are larger",
    "raps": "like aps, without the tail of improbable classes",
}
_SETS_BY = {
    "all": "all classes together",
    "class": "the rows of each class, which needs rows of each",
    "cluster": "the rows of each cluster of alike classes, for many classes",
}


@router.get("/new-model")
async def model_form(visit: SignedIn) -> Response:
    visit.authorise(create_model)
    return page(visit, "new_model", fields={})


@router.post("/new-model")
async def new_model(visit: SignedIn) -> Response:
    fields = await visit.form()
    names = [name.strip() for name in fields.get("classes", "").split(",") if name.strip()]
    is_number = len(names) == 1 and names[0].isdigit()
    body = {
        "name": fields.get("name", "").strip(),
        "classes": int(names[0][:9]) if is_number else names,
        "task": "multilabel" if "multilabel" in fields else "multiclass",
    }
    try:
        created = await visit.call(create_model, body=body)
    except RecalibError as error:
        return page(visit, "new_model", fields=fields, error=error)
    return redirect(visit, f"models/{created.name}/datasets")


@router.post("/models/{model}/datasets")
async def upload(visit: SignedIn, model: str) -> Response:
    """Upload a file of a form; every row is checked before the answer."""
    visit.authorise(upload_dataset, model)
    try:
        dataset = await _upload(visit, model)
    except RecalibError as error:
        return await datasets_page(visit, model, error=error)
    return await datasets_page(visit, model, added=dataset)


async def _upload(visit: Visit, model: str) -> Dataset:
    form = await _multipart(visit)
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InputError("file", found="none", accepted=", ".join(sorted(SUFFIXES)))
        suffix = Path(file.filename).suffix.lower()
        if suffix not in SUFFIXES:
            accepted = ", ".join(sorted(SUFFIXES))
            raise InputError("file", found=suffix or "no suffix", accepted=accepted)
        kind = next(kind for kind, name in MEDIA_TYPES.items() if name == SUFFIXES[suffix])
        name = str(form.get("name") or Path(file.filename).stem)
        input: Any = "probabilities" if form.get("input") == "probabilities" else "logits"
        registry = visit.state.registry
        dataset, _ = await handlers.upload_dataset(
            registry, model, name, kind, input, _pieces(file)
        )
        return dataset
    finally:
        await form.close()


async def _multipart(visit: Visit) -> FormData:
    """Return the form; `ForbiddenError` if it is not of this session, `TooLargeError`."""
    limit = visit.body_limit

    async def limited() -> AsyncGenerator[bytes, None]:
        size = 0
        async for part in visit.request.stream():
            size += len(part)
            if size > limit:
                accepted = f"at most {limit} bytes"
                raise TooLargeError("file", found=f"over {limit} bytes", accepted=accepted)
            yield part

    parser = MultiPartParser(visit.request.headers, limited(), max_files=1, max_fields=10)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError):
        raise InputError("form", found="another body", accepted="a form with a file") from None
    try:
        visit.check_form_token(str(form.get("form_token", "")))
    except ForbiddenError:
        await form.close()
        raise
    return form


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE_BYTES):
        yield piece


@router.get("/models/{model}/fit")
async def fit_form(visit: SignedIn, model: str, dataset: str = "") -> Response:
    visit.authorise(create_calibrator, model)
    return await _fit_form(visit, model, {"dataset": dataset})


async def _fit_form(
    visit: Visit, model: str, fields: dict[str, str], error: RecalibError | None = None
) -> Response:
    facts = await visit.call(get_model, model=model)
    found = await visit.call(list_datasets, model=model)
    is_multilabel = facts.task == "multilabel"
    names = list(LABEL_MAPS) if is_multilabel else [AUTO, *MAPS]
    maps = {name: _WHEN.get(name, "") for name in sorted(names, key=lambda n: n not in _WHEN)}
    objectives = {
        name: (kind.__doc__ or "").partition("\n")[0] for name, kind in OBJECTIVES.items()
    }
    return page(
        visit, "fit", error=error, tab="versions",
        model=facts, datasets=[item.name for item in found.items], maps=maps,
        objectives=objectives, sets={} if is_multilabel else _SETS,
        sets_by=_SETS_BY, fields=fields,
    )  # fmt: skip


@router.post("/models/{model}/fit")
async def fit(visit: SignedIn, model: str) -> Response:
    fields = await visit.form()
    promote: dict[str, Any] = {"always": True, "never": False}
    body: dict[str, Any] = {name: fields.get(name, "") for name in ("dataset", "map", "objective")}
    if fields.get("sets"):
        body |= {"sets": fields["sets"], "sets_by": fields.get("sets_by", "all")}
    body["promote"] = promote.get(fields.get("promote", ""), "if_better")
    key = fields.get("key")
    try:
        if body.get("sets"):
            body["coverage"] = number_field(fields, "coverage")
        job = await visit.call(create_calibrator, model=model, body=body, idempotency_key=key)
    except RecalibError as error:
        return await _fit_form(visit, model, fields, error)
    return redirect(visit, f"jobs/{job.id}")
