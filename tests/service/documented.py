"""A test client that checks each answer against the OpenAPI document."""

from __future__ import annotations

import functools
import re
from typing import Any

import jsonschema
from starlette.testclient import TestClient

from recalib.settings import Settings
from service.app import create_app

__all__ = ["Answers", "DocumentedClient", "answers", "operations"]


class Answers:
    """The answers that an OpenAPI document allows."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), operations)
            for path, operations in document["paths"].items()
        ]

    def check(self, answer: Any) -> None:
        """Fail unless status, media type and body are described for the request's operation."""
        operation = self._operation(answer.request.method, answer.request.url.path)
        if operation is None:
            return
        what = f"{operation['operationId']} answered {answer.status_code}"
        allowed = operation["responses"].get(str(answer.status_code))
        assert allowed is not None, f"{what}, which is not described: {answer.text[:500]}"
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in allowed["content"], f"{what} as {kind}, which is not described"
        for header in allowed.get("headers", {}):
            assert header in answer.headers, f"{what} without {header}"
        if kind.endswith("json"):
            self._validator(operation["operationId"], answer.status_code, kind).validate(
                answer.json()
            )

    def _operation(self, verb: str, path: str) -> dict[str, Any] | None:
        for pattern, operations in self._paths:
            if pattern.fullmatch(path) and verb.lower() in operations:
                operation: dict[str, Any] = operations[verb.lower()]
                return operation
        return None

    @functools.cache  # noqa: B019  (one object for all tests)
    def _validator(self, name: str, status: int, kind: str) -> Any:
        operation = operations(self.document)[name]
        schema = operation["responses"][str(status)]["content"][kind]["schema"]
        closed = {
            name: {"additionalProperties": False, **item} if "properties" in item else item
            for name, item in self.document["components"]["schemas"].items()
        }
        return jsonschema.Draft202012Validator(
            {**schema, "components": {"schemas": closed}},
        )


class DocumentedClient(TestClient):
    """A test client that fails on undocumented answers."""

    def request(self, *arguments: Any, **more: Any) -> Any:
        answer = super().request(*arguments, **more)
        answers().check(answer)
        return answer


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every operation by its id."""
    return {
        operation["operationId"]: operation
        for path in document["paths"].values()
        for operation in path.values()
    }


@functools.cache
def answers() -> Answers:
    """Return the answers that the service's document allows.

    The document depends on no setting and takes 100 ms, so all tests share it.
    """
    return Answers(create_app(Settings()).openapi())
