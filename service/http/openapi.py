"""What the description of the interface says besides what FastAPI finds out by itself: problems.

FastAPI would document one error, a 422 in a form of its own that no request here is answered with.
"""

from __future__ import annotations

from typing import Any

from service.access.permissions import RULES
from service.http.problems import MEDIA_TYPE, PLAIN_PREFIX, Problem

__all__ = ["TAGS", "add_problem_responses", "problems"]

TAGS = [
    {"name": "models", "description": "Classifiers to be calibrated."},
    {"name": "datasets", "description": "Validation logits with labels, uploaded."},
    {"name": "calibrators", "description": "Fits, their versions, and the aliases that serve."},
    {"name": "calibrate", "description": "From logits to calibrated probabilities."},
    {"name": "labels", "description": "The true classes of predictions, when they are known."},
    {"name": "monitoring", "description": "Whether what is served is still calibrated."},
    {"name": "inference", "description": "Calibration by the Open Inference Protocol V2."},
    {"name": "training", "description": "Networks, trained by a worker as a recipe says."},
    {"name": "jobs", "description": "Work that a worker does: state, progress, result."},
    {"name": "operations", "description": "For those who run the service."},
]

_SCHEMAS = "#/components/schemas/"

#: When a request is answered so, for whoever reads the description.
_MEANING = {
    401: "No API key where one is needed, or one that is no good.",
    403: "The API key is not for this.",
    404: "Something that the request names does not exist.",
    406: "No form of answer that `Accept` asks for; `errors` lists those that there are.",
    409: "It contradicts what is already there.",
    413: "Larger than a limit, which `errors` states.",
    415: "A content type that is not read; `errors` lists those that are.",
    422: "Input that cannot be used; `errors` says where, what was found and what is accepted.",
    429: "Too many requests, rows or wrong keys of late; or too many requests at once.",
    500: "The service is at fault; its log says how.",
    503: "The database or the blob store cannot be reached; trying again may help.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for routes that may answer with these problems."""
    return {status: _described(status) for status in statuses}


def add_problem_responses(document: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's document with problems in place of FastAPI's own errors."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(problem.pop("$defs"), Problem=problem)
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
    }
    for path_of, path in document["paths"].items():
        for operation in path.values():
            if MEDIA_TYPE not in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"].pop("422", None)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                _name(content, schemas)
            if RULES.get(operation["operationId"]) != "open":
                _guard(operation, path_of)
            # In the order in which people look for them.
            operation["responses"] = dict(sorted(operation["responses"].items()))
    return document


def _guard(operation: dict[str, Any], path: str) -> None:
    """Say that a key may be needed: without one where the server does not ask for any."""
    operation["security"] = [{"key": []}, {}]
    for status in (401, 403, 429):
        described = _described(status)
        if path.startswith(PLAIN_PREFIX):
            described["content"] = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Error"}}}
        operation["responses"][str(status)] = described


def _name(content: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Give a body that was described in place a name, as pydantic's have: clients show it."""
    title = content["schema"].get("title")
    if title is not None:
        schemas[title] = content["schema"]
        content["schema"] = {"$ref": f"{_SCHEMAS}{title}"}


def _described(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": _MEANING[status],
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}},
    }
    if status in (429, 503):
        described["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
        }
    return described
