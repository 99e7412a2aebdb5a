"""Hostile input of pages: what REST refuses, a form refuses in place, and no page fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from typing import Any
from urllib.parse import quote

from fastapi.routing import APIRoute

from service.console.pages import router
from tests.service.conftest import Service
from tests.service.test_console import Browser

#: Empty, control characters, marks of direction, markup, numbers out of range, paths, long texts.
_HOSTILE = (
    "", " ", "a\x1fb", "\u202eevil", "<b>'\"&", "-1", "0", "1e400", "nan", "9" * 30, "../../x",
    "{{7*7}}", "x" * 600, "\ufffd\U0001f600", "champion",
)  # fmt: skip
#: The page of a form, its valid fields, and its request of REST: method, path, and the body or
#: query of the fields.
_FORMS: dict[str, tuple[dict[str, str], str, str, Any]] = {
    "new-model": (
        {"name": "birds", "classes": "owl,crow"}, "POST", "/v1/models",
        lambda fields: {"json": {"name": fields["name"], "classes": fields["classes"].split(",")}},
    ),
    "models/digits/promote/1": (
        {"reason": "better"}, "PUT", "/v1/models/digits/aliases/champion",
        lambda fields: {"json": {"version": 1, "reason": fields["reason"]}},
    ),
    "models/digits/drop/1": (
        {"reason": "worse"}, "DELETE", "/v1/models/digits/monitoring/candidates/1",
        lambda fields: {"params": {"reason": fields["reason"]}},
    ),
    "models/digits/fit": (
        {"dataset": "none", "map": "temperature", "objective": "nll"}, "POST",
        "/v1/models/digits/calibrators", lambda fields: {"json": fields},
    ),
}  # fmt: skip


#: Of addresses.
_TEXTS = ("\0", "%", "\u202e", "<b>'\"&", "-1", "9" * 30, "../../x", "x" * 600)
_VALID = {"model": "digits", "version": "1", "ending": "sign-out"}
_FIELD = re.compile(r'<(?:input|select|textarea)[^>]* name="(\w+)"')


def _cases(path: str) -> list[dict[str, str]]:
    fields = _FORMS[path][0]
    return [{**fields, name: text} for name in fields for text in _HOSTILE]


def test_what_rest_refuses_a_form_refuses_in_place(ready: Service) -> None:
    browser, refusals = Browser(ready.client.app), 0
    for path, (_, method, url, request) in _FORMS.items():
        hidden = browser.hidden(browser.get(path).text)
        for fields in _cases(path):
            of_rest = ready.client.request(method, url, **request(fields))
            if of_rest.is_success or fields.get("classes", "x").strip(", ").isdigit():
                continue
            answer = browser.client.post(f"/console/{path}", data={**hidden, **fields})
            assert answer.status_code == of_rest.status_code, (path, fields, answer.text)
            assert 'role="alert"' in answer.text, (path, fields)
            refusals += 1
    assert refusals > 50


def _routes(method: str) -> Iterator[APIRoute]:
    """Return the pages that have something to fill in, those of the future too."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        if method in route.methods and "/sign-" not in route.path:
            yield route


def _addresses(route: APIRoute) -> Iterator[str]:
    """Return addresses of a page with one hostile part or argument each."""
    for place in route.param_convertors:
        for text in _TEXTS:
            yield _address(route, **{place: quote(text, safe="")})
    for query in route.dependant.query_params:
        for text in _TEXTS:
            yield f"{_address(route)}?{query.name}={quote(text, safe='')}"


def _address(route: APIRoute, **parts: str) -> str:
    """Return the address of a page; what is neither a model nor its version does not exist."""
    return route.path_format.format_map(
        {**dict.fromkeys(route.param_convertors, "none"), **_VALID, **parts}
    )


def test_no_address_fails(ready: Service) -> None:
    client = Browser(ready.client.app).client
    for address in chain.from_iterable(map(_addresses, _routes("GET"))):
        answer = client.get(address)
        assert answer.status_code < 500, (address, answer.text)
        assert "<b>'" not in answer.text, address
    for path in ("refit", "drop/1", "promote/1", "fit"):
        assert client.get(f"/console/models/call-0800/{path}").status_code == 404, path


def test_no_address_of_a_form_fails(ready: Service) -> None:
    browser = Browser(ready.client.app)
    hidden = browser.hidden(browser.get("models/digits/refit").text)
    for address in chain.from_iterable(map(_addresses, _routes("POST"))):
        answer = browser.client.post(address, data=hidden)
        assert answer.status_code < 500, (address, answer.text)


def test_no_field_of_a_form_fails(ready: Service) -> None:
    """Each field of each form, the hidden ones too; what is refused is said in place."""
    browser = Browser(ready.client.app)
    for route in _routes("POST"):
        path = _address(route)
        form = browser.client.get(path).text.partition("<main")[2]
        names = set(_FIELD.findall(form)) - {"form_token", "file"}
        for name, text in product(sorted(names), ("", "a\0b", "9" * 30, "nan", "x" * 600)):
            answer = browser.client.post(path, data={**browser.hidden(form), name: text})
            assert answer.status_code < 500, (path, name, text)
            assert answer.is_redirect or "<form" in answer.text or "\0" in text, (path, name, text)
