"""Requests with arbitrary JSON values: no 500 and no internal details."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.fixtures import sqlite_template
from tests.service.conftest import Service, shared

__all__ = ["shared", "sqlite_template"]

_NASTY = st.sampled_from(
    [
        10**30, -(10**30), 2**63, 2**31, -1, 0, 1.5, 1e308, -1e308, 5e-324, None, True, "", "\0",
        "\x1b[31m\r\n", "\u202e", "x" * 5000, "%00", "../..", [], {}, [[]], [[[]]], {"a": {}},
        [None] * 9, "9" * 400, "A" * 88,
    ]
)  # fmt: skip
_ROW = [0.5, 1.0, None, -2.0]
_BODIES: dict[str, Any] = {
    "calibrate": {"logits": [_ROW, _ROW]},
    "labels": [{"prediction_id": "A" * 88, "label": 1}, {"prediction_id": "x", "label": "1"}],
    "observations": {"logits": [_ROW], "labels": [1], "times": [1.8e9], "segment": "a"},
    "calibrators": {"dataset": "validation", "map": "temperature", "options": {}},
    "aliases/other": {"version": 1},
    "monitoring/settings": {"segments": ["a"], "maturity_seconds": 5, "objective": 0.1},
}
_VERBS = {"aliases/other": "PUT", "monitoring/settings": "PUT"}


@pytest.mark.slow
@pytest.mark.parametrize("name", _BODIES)
@given(data=st.data())
def test_arbitrary_values_are_not_server_errors(shared: Service, name: str, data: Any) -> None:
    """One value of a valid body, at any place, is replaced."""
    body = json.loads(json.dumps(_BODIES[name]))
    if name == "observations":
        body["times"] = [time.time()]
    assert _sent(shared, name, body).status_code < 300  # otherwise only the schema is reached
    _change(data, body)
    answer = _sent(shared, name, body)
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    assert "\x1b" not in answer.text


def _sent(service: Service, name: str, body: Any) -> Any:
    return service.client.request(
        _VERBS.get(name, "POST"),
        f"/v1/models/digits/{name}",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )


def _change(data: Any, body: Any) -> None:
    """Replace a value, or add a value under a new name."""
    while True:
        named = isinstance(body, dict)
        place = data.draw(st.sampled_from([*body, "unknown"] if named else range(len(body))))
        inner = body.get(place) if named else body[place]
        if not isinstance(inner, list | dict) or not inner or data.draw(st.booleans()):
            body[place] = data.draw(_NASTY)
            return
        body = inner
