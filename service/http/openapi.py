"""Additions to FastAPI's OpenAPI document: tags, problem responses and security.

FastAPI documents a single error, a 422 in its own format, which this server never sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from recalib.core.field_comments import field_comments
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings
from service.http.examples import EXAMPLES
from service.http.problems import MEDIA_TYPE, PLAIN_PREFIX, Problem
from service.operations import OPERATIONS

TAGS = [
    {"name": "models", "description": "Classifiers to calibrate."},
    {"name": "datasets", "description": "Uploaded validation logits with labels."},
    {"name": "calibrators", "description": "Fits, their versions, and the aliases that serve."},
    {"name": "evaluations", "description": "Versions, measured on a data set and compared."},
    {"name": "batches", "description": "Files of any size, calibrated by a job."},
    {"name": "calibrate", "description": "Calibrated probabilities from logits."},
    {"name": "labels", "description": "True classes of earlier predictions."},
    {"name": "monitoring", "description": "Calibration of the served predictions over time."},
    {"name": "inference", "description": "Calibration by the Open Inference Protocol V2."},
    {"name": "training", "description": "Networks that a worker trains from a recipe."},
    {"name": "jobs", "description": "Background work: state, progress, result."},
    {"name": "events", "description": "Changes of states, jobs, versions and aliases."},
    {"name": "operations", "description": "For operators of the service."},
]

_SCHEMAS = "#/components/schemas/"

#: Description of each problem status.
DESCRIPTIONS = {
    401: "The API key is missing or not valid.",
    403: "The API key does not permit this operation, or a page of another site sent the request.",
    404: "A resource that the request names does not exist.",
    406: "No available response format matches `Accept`; `errors` lists the available ones.",
    409: "The request conflicts with the current state.",
    413: "The request exceeds a size limit, which `errors` states. JSON has at most 1 MiB, with "
    "logits, labels or parameters at most `RECALIB_MAX_JSON_BYTES`.",
    415: "Unsupported content type; `errors` lists the supported ones.",
    421: "A server without keys accepts only loopback names and `RECALIB_ALLOWED_HOSTS` in `Host`.",
    422: "Invalid input; `errors` says where, what was found and what is accepted.",
    429: "Too many requests, rows, wrong keys or concurrent requests.",
    500: "Server error; the log has the details.",
    503: "The database or the blob store cannot be reached; a retry may succeed.",
}
#: Meaning of each parameter that has no description of its own.
_PARAMETERS = {
    "model": "Name of the model.",
    "name": "Name of the data set or of the file.",
    "version": "Number of the version, or an alias; a candidate has a number.",
    "alias": "Name of the alias.",
    "evaluation_id": "Id of the evaluation.",
    "batch_id": "Id of the batch.",
    "job_id": "Id of the job.",
    "webhook_id": "Id of the webhook.",
    "event_id": "Id of the event.",
    "job_state": "State of the jobs.",
    "delivery_state": "State of the deliveries.",
    "actor": "Who did it, as in the entries.",
    "action": "Operation id, as in the entries.",
}


#: The content of a body of bytes.
BINARY = {"schema": {"type": "string", "format": "binary"}}


def request_body(content: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    """Return the addition to a route that reads its body itself.

    Parameters
    ----------
    content: what describes the body, by media type.
    """
    described = {"description": description} if description else {}
    return {"requestBody": {"required": True, **described, "content": content}}


def query_parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    """Return an optional parameter of a route that reads its query itself."""
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": schema,
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` argument of a route for statuses that `_statuses` does not give it."""
    return {status: _response(status) for status in statuses}


def add_problem_responses(document: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's document with problem responses in place of FastAPI's own errors."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(problem.pop("$defs"), Problem=problem)
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
    }
    for template, path in document["paths"].items():
        for operation in path.values():
            _summarise(operation)
            for parameter in operation.get("parameters", ()):
                if "description" not in parameter:
                    parameter["description"] = _PARAMETERS[parameter["name"]]
            if MEDIA_TYPE not in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"].pop("422", None)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                _move_to_components(content, schemas)
                if content["schema"].get("format") != "binary":
                    name = re.findall(rf"{_SCHEMAS}(\w+)", str(content["schema"]))[0]
                    content["example"] = EXAMPLES[name]
            if OPERATIONS[operation["operationId"]].scope != "open":
                operation["security"] = [{"key": []}, {}]  # only some servers require a key
            for status in _statuses(operation, template):
                operation["responses"][str(status)] = _response(status, template)
            # Sorted by status, for readers.
            operation["responses"] = dict(sorted(operation["responses"].items()))
    return document


def describe_properties(schemas: dict[str, Any]) -> None:
    """Describe properties by the comments above the fields of their classes."""
    settings = (MonitoringSettings, RetentionSettings)
    for kind in (*settings, *_subclasses(BaseModel), *_subclasses(msgspec.Struct)):
        properties = schemas.get(kind.__name__, {}).get("properties", {})
        if any("description" not in value for value in properties.values()):
            comments = field_comments(kind)
            for name, value in properties.items():
                if comments.get(name):
                    value.setdefault("description", comments[name])


def _subclasses(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        if child.__module__.partition(".")[0] in ("recalib", "service"):
            yield child
            yield from _subclasses(child)


def _summarise(operation: dict[str, Any]) -> None:
    """Divide the docstring into the summary, its first paragraph, and the description."""
    summary, _, description = operation.pop("description").partition("\n\n")
    operation["summary"] = " ".join(summary.split())
    if description:
        operation["description"] = description


def _statuses(operation: dict[str, Any], path: str) -> set[int]:
    """Return the problem statuses that follow from the path, the parameters and the body."""
    statuses = {421} | ({401, 403, 429} if "security" in operation else set())
    if not path.startswith("/v1"):  # whose operations name further ones
        return statuses
    statuses |= {500, 503} | ({404} if "{" in path else set())
    if "requestBody" in operation:
        statuses |= {413, 415, 422}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path" or parameter["schema"]["type"] != "string":
            statuses.add(422)
        if parameter["name"] == "idempotency-key":  # it may be that of another request
            statuses.add(409)
    return statuses


def _move_to_components(content: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Replace an inline body schema by a reference to a named component: clients show the name."""

    def moved(schema: dict[str, Any]) -> dict[str, Any]:
        title = schema.get("title")
        if title is None:
            return schema
        schemas[title] = schema
        return {"$ref": f"{_SCHEMAS}{title}"}

    schema = moved(content["schema"])
    if "items" in schema:
        schema = {**schema, "items": moved(schema["items"])}
    if "anyOf" in schema:
        schema = {**schema, "anyOf": [moved(option) for option in schema["anyOf"]]}
    content["schema"] = schema


def _response(status: int, path: str = "") -> dict[str, Any]:
    of = ("application/json", "Error") if path.startswith(PLAIN_PREFIX) else (MEDIA_TYPE, "Problem")
    media_type, schema = of
    response: dict[str, Any] = {
        "description": DESCRIPTIONS[status],
        "content": {media_type: {"schema": {"$ref": f"{_SCHEMAS}{schema}"}}},
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
        }
    return response
