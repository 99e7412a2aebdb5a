"""The monitoring settings of a model as a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from functools import cache
from typing import Any, NamedTuple

from anyio import to_thread
from fastapi import Response
from pydantic import TypeAdapter

from recalib.core.field_comments import field_comments
from recalib.core.monitoring_settings import EvidenceSettings, MonitoringSettings
from recalib.errors import InputError, NotFoundError, RecalibError
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.jobs.rest import get_job
from service.models.rest import get_model
from service.monitoring.replays import request_settings_replay
from service.monitoring.rest import set_monitoring


class _Field(NamedTuple):
    """A setting in the form."""

    name: str
    description: str
    default: Any
    #: Empty for a setting that is no list of words.
    words: tuple[str, ...]
    is_list: bool
    is_number: bool
    is_optional: bool
    decides_state: bool


@cache
def _fields() -> list[_Field]:
    """Return the settings in the order of their declaration."""
    schemas = TypeAdapter(MonitoringSettings).json_schema()["properties"]
    comments = field_comments(MonitoringSettings)
    deciding = {known.name for known in fields_of(EvidenceSettings)}
    found = []
    for name, schema in schemas.items():
        kinds = {part.get("type") for part in schema.get("anyOf", [schema])}
        found.append(
            _Field(
                name,
                comments[name],
                schema["default"],
                tuple(schema.get("enum", ())),
                is_list="array" in kinds,
                is_number=bool(kinds & {"number", "integer"}),
                is_optional="null" in kinds,
                decides_state=name in deciding,
            )
        )
    return found


def _text(value: Any) -> str:
    """Return a setting as the form has it."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _value(field: _Field, text: str) -> Any:
    """Return what the text of a field stands for; text that is no number stays text."""
    if field.is_list:
        return [line.strip() for line in text.splitlines() if line.strip()]
    text = text.strip()
    if field.is_optional and not text:
        return None
    try:
        return float(text) if field.is_number else text
    except ValueError:
        return text


@router.get("/models/{model}/settings")
async def monitoring_form(visit: SignedIn, model: str, job: str = "") -> Response:
    """Show the form, with the settings that are set, or those that a job has tried."""
    visit.authorise(set_monitoring, model)
    if not job:
        return await _form(visit, model)
    tried = ((await visit.call(get_job, job_id=job)).result or {}).get("settings")
    if not isinstance(tried, dict):
        raise NotFoundError("tried settings", job)
    return await _form(visit, model, {name: _text(value) for name, value in tried.items()})


async def _form(
    visit: Visit,
    model: str,
    sent: Mapping[str, str] | None = None,
    error: RecalibError | None = None,
) -> Response:
    facts = await visit.call(get_model, model=model)
    present = {field.name: _text(getattr(facts.monitoring, field.name)) for field in _fields()}
    place = error.field.partition(".")[0] if isinstance(error, InputError) else ""
    return page(
        visit, "monitoring_form", error=error, tab="settings", model=facts, fields=_fields(),
        present=present, shown=sent or present,
        place=place if place in present else "", text=_text,
    )  # fmt: skip


@router.post("/models/{model}/settings")
async def change_monitoring(visit: SignedIn, model: str) -> Response:
    """Set the settings of the form, or try them on what is retained."""
    visit.authorise(set_monitoring, model)
    sent = await visit.form()
    body = {field.name: _value(field, sent.get(field.name, "")) for field in _fields()}
    key = sent.get("key")
    try:
        arguments = visit.checked(set_monitoring, model=model, body=body, idempotency_key=key)
        if "try" in sent:
            of = visit.state.registry, model, arguments["body"], key
            job = await to_thread.run_sync(request_settings_replay, *of)
            return redirect(visit, f"jobs/{job.id}")
        await visit.call(set_monitoring, **arguments)
    except RecalibError as error:
        return await _form(visit, model, sent, error)
    return redirect(visit, f"models/{model}/monitoring")
