"""Network and server faults: retries of transient errors, clear errors otherwise."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from recalib import errors as house
from recalib.client import (
    InvalidRequestError,
    InvalidResponseError,
    OverloadedError,
    ResourceNotFoundError,
    Retries,
    ServerTimeoutError,
    ServiceError,
    UnreachableError,
    errors,
)
from recalib.client.operations import Request, Response
from service.http.problems import PROBLEMS, problem_of
from tests.client.either import Either
from tests.client.flaky import Act, Flaky, closes, drips, hangs, problem, resets, says
from tests.service.conftest import npy

Clients = Callable[..., Either]

MODEL = {"name": "m", "classes": 3, "labels": None, "created_at": "2026-01-01T00:00:00+00:00"}
PASSES: dict[str, Act] = {
    "reset": resets,
    "closed without a word": closes(b""),
    "closed within the head": closes(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "closed within the body": closes(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"name'),
    "503 by Recalib": problem(503, "The database is away.", Retry_After="0"),
    "503 by a proxy": says(503, b"<html>Busy</html>", Retry_After="soon"),
    "502": says(502),
    "504": says(504),
    "429": says(429, Retry_After="0"),
}


@pytest.mark.parametrize("act", PASSES.values(), ids=PASSES)
def test_transient_errors_are_retried(client_of: Clients, flaky: Flaky, act: Act) -> None:
    """Each fault causes an identical retry."""
    flaky.will(act, act, says(201, MODEL))
    model = client_of(flaky.url, headers={"Authorization": "secret"}).create_model("m", 3)
    assert (model.name, model.classes) == ("m", 3)
    first, *again = flaky.received
    assert again == [first, first]
    assert (first.method, first.path, first.body) == (
        "POST",
        "/v1/models",
        b'{"name":"m","classes":3}',
    )
    assert len(first.headers["idempotency-key"]) == 32
    assert first.headers["authorization"] == "secret"


def test_idempotency_keys_differ_between_requests(client_of: Clients, flaky: Flaky) -> None:
    """A shared key would return the first model for the second request."""
    flaky.will(says(201, MODEL))
    client = client_of(flaky.url)
    client.create_model("a", 3)
    client.create_model("b", 3)
    assert len({request.headers["idempotency-key"] for request in flaky.received}) == 2


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (resets, UnreachableError, "no response from http"),
        (says(503, b"Busy"), OverloadedError, "POST /v1/models was answered 503: Busy"),
        (problem(503, "Away."), OverloadedError, "^Away.$"),
    ],
)
def test_persistent_errors_are_raised_after_retries(
    client_of: Clients, flaky: Flaky, act: Act, error: type[Exception], message: str
) -> None:
    """The error of the last attempt is raised."""
    flaky.will(act)
    with pytest.raises(error, match=message) as excinfo:
        client_of(flaky.url, attempts=3).create_model("m", 3)
    assert isinstance(excinfo.value, house.UnavailableError)
    assert len(flaky.received) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 409, 413, 422, 500, 501])
def test_permanent_errors_are_not_retried(client_of: Clients, flaky: Flaky, status: int) -> None:
    flaky.will(says(status, b"No.", X_Request_Id="17", Location="/v1"))
    with pytest.raises(
        ServiceError, match=f"GET /v1/models/m was answered {status}: No."
    ) as excinfo:
        client_of(flaky.url).get_model("m")
    assert (excinfo.value.status, excinfo.value.request_id) == (status, "17")
    assert len(flaky.received) == 1


def test_refused_connection_raises_unreachable(client_of: Clients) -> None:
    with pytest.raises(
        UnreachableError, match=r"no response from http://127\.0\.0\.1:1: "
    ) as excinfo:
        client_of("http://127.0.0.1:1", attempts=2).get_model("m")
    assert not isinstance(excinfo.value, ServerTimeoutError)


def test_retry_waits_for_the_first_attempt_to_finish(client_of: Clients, flaky: Flaky) -> None:
    """A conflict with a running attempt is transient; on a first attempt it is an error."""
    conflict = problem(409, "idempotency key 'x' is in use by another request")
    flaky.will(resets, conflict, says(201, MODEL))
    assert client_of(flaky.url).create_model("m", 3).name == "m"
    flaky.will(conflict)
    with pytest.raises(house.ConflictError):
        client_of(flaky.url).create_model("m", 3)
    assert len(flaky.received) == 4


@pytest.mark.parametrize("act", [hangs, drips], ids=["says nothing", "never ends"])
def test_timeout_covers_all_attempts(client_of: Clients, flaky: Flaky, act: Act) -> None:
    """The timeout applies to the operation, including all retries."""
    flaky.will(act)
    client = client_of(flaky.url, timeout=0.3)
    started = time.monotonic()
    with pytest.raises(ServerTimeoutError):
        client.get_model("m")
    assert 0.3 <= time.monotonic() - started < 20
    assert len(flaky.received) == 1


def test_pause_longer_than_the_timeout_fails_at_once(client_of: Clients, flaky: Flaky) -> None:
    """A requested pause of 60 s exceeds the timeout of 10 s."""
    flaky.will(problem(503, "Later.", Retry_After="60"))
    started = time.monotonic()
    with pytest.raises(OverloadedError, match="Later"):
        client_of(flaky.url, timeout=10).get_model("m")
    assert time.monotonic() - started < 9
    assert len(flaky.received) == 1


def test_retry_after_is_respected(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(problem(503, "Later.", Retry_After="1"), says(200, MODEL))
    started = time.monotonic()
    client_of(flaky.url).get_model("m")
    assert time.monotonic() - started >= 1


def test_pauses_grow_and_are_bounded() -> None:
    assert list(Retries(6, 0.5, 3.0).bounds()) == [0.5, 1, 2, 3, 3]
    assert list(Retries(1).bounds()) == []
    # 2.0 ** 5000 overflows a float.
    assert list(Retries(5000, 0.5, 3.0).bounds())[-1] == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{", b"[]", b"{}", b'{"name": 3}', b"\xff\xfe", b'"\xed\xa0\x80"'],
)
def test_foreign_responses_are_rejected(client_of: Clients, flaky: Flaky, body: bytes) -> None:
    """For example from another program; there is no retry."""
    flaky.will(says(200, body))
    with pytest.raises(InvalidResponseError, match=r"^GET /v1/models/m: the server's response "):
        client_of(flaky.url).get_model("m")
    assert len(flaky.received) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"0.5",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"
        + b" " * 59,
        b"PK\x03\x04",
    ],
)
def test_malformed_probabilities_are_rejected(
    client_of: Clients, flaky: Flaky, body: bytes
) -> None:
    """Pickles and arrays of wrong dtype or shape are rejected."""
    flaky.will(says(200, body))
    with pytest.raises(InvalidResponseError, match="the server's response is no npy array"):
        client_of(flaky.url).calibrate("m", np.zeros((2, 3)))


@pytest.mark.parametrize("array", [np.zeros((3, 2)), np.zeros(6), np.zeros((2, 3), int)])
def test_probabilities_of_wrong_shape_are_rejected(
    client_of: Clients, flaky: Flaky, array: Any
) -> None:
    flaky.will(says(200, npy(array)))
    with pytest.raises(InvalidResponseError, match=r"numbers \(2, 3\) are expected"):
        client_of(flaky.url).calibrate("m", np.zeros((2, 3)))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"probabilities": np.zeros((2, 3))},
        {"probabilities": np.zeros((2, 3)), "prediction_ids": np.zeros(2)},
        {"probabilities": np.zeros((2, 3)), "prediction_ids": np.array([b"i"])},
        {"probabilities": np.zeros((1, 3)), "prediction_ids": np.array([b"i", b"j"])},
    ],
)
def test_malformed_predictions_are_rejected(
    client_of: Clients, flaky: Flaky, arrays: dict[str, Any]
) -> None:
    file = io.BytesIO()
    np.savez(file, **arrays)
    for body in (file.getvalue(), file.getvalue()[:100], b""):
        flaky.will(says(200, body))
        with pytest.raises(InvalidResponseError, match="the server's response"):
            client_of(flaky.url).predict("m", np.zeros((2, 3)))


@pytest.mark.parametrize(
    "top",
    [
        {},
        {"classes": [[0]], "probabilities": [[1.0]]},
        {"classes": [[0], [1, 2]], "probabilities": [[1.0], [1.0]]},
        {"classes": [[0], [1]], "probabilities": [[1.0], []]},
        {"classes": [[0.5], [1]], "probabilities": [[1.0], [1.0]]},
    ],
)
def test_malformed_top_k_classes_are_rejected(
    client_of: Clients, flaky: Flaky, top: dict[str, Any]
) -> None:
    flaky.will(says(200, {"top_k": top}))
    with pytest.raises(InvalidResponseError, match="the server's response"):
        client_of(flaky.url).calibrate_top("m", np.zeros((2, 3)), 1)


def test_ready_status(client_of: Clients, flaky: Flaky) -> None:
    """An unready server returns the reason; a proxy error is raised. There is no retry."""
    client = client_of(flaky.url)
    away = {"ready": False, "registry": "unreachable", "loaded": 0, "detail": "No database."}
    flaky.will(says(503, away, Retry_After="0"))
    assert (client.ready().ready, client.ready().detail) == (False, "No database.")
    for status, error in (
        (503, OverloadedError),
        (502, OverloadedError),
        (404, ResourceNotFoundError),
    ):
        flaky.will(says(status, b"<html>"))
        with pytest.raises(error, match=f"GET /readyz was answered {status}: <html>"):
            client.ready()
    flaky.will(says(200, b"<html>"))
    with pytest.raises(InvalidResponseError):
        client.ready()
    assert len(flaky.received) == 6


def test_invalid_compression_is_rejected(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(says(200, b"no gzip", Content_Encoding="gzip"))
    with pytest.raises(InvalidResponseError, match="cannot be decompressed"):
        client_of(flaky.url).get_model("m")


def test_unknown_response_fields_are_ignored(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(says(200, {**MODEL, "colour": "blue"}))
    assert client_of(flaky.url).get_model("m").classes == 3


def test_all_violations_are_reported(client_of: Clients, flaky: Flaky) -> None:
    """The error has all violations; its own fields are those of the first."""
    some = [{"field": f"classes[{i}]", "found": str(i), "accepted": "a name"} for i in range(3)]
    flaky.will(problem(422, "Three things.", *some))
    with pytest.raises(InvalidRequestError, match="Three things") as excinfo:
        client_of(flaky.url).create_model("m", ["0", "1", "2"])
    assert [(violation.field, violation.found) for violation in excinfo.value.violations] == [
        (f"classes[{i}]", str(i)) for i in range(3)
    ]
    assert (excinfo.value.field, excinfo.value.accepted) == ("classes[0]", "a name")
    assert excinfo.value.title == "T"


@pytest.mark.parametrize("kind", PROBLEMS)
def test_service_errors_keep_their_type(kind: type[house.RecalibError]) -> None:
    """`except NotFoundError` works with and without a server."""
    factories = {
        house.InputError: lambda kind: kind("logits", found="x", accepted="y"),
        house.NotFoundError: lambda kind: kind("model", "m"),
        house.LimitedError: lambda kind: kind("too much", 7),
    }
    make = next(
        (factories[base] for base in kind.__mro__ if base in factories),
        lambda kind: kind("because"),
    )
    response = problem_of(make(kind))
    request = Request("GET", "/v1/models/m")
    headers = dict(response.headers)
    result = errors.service_error(
        Response(request, response.status_code, headers, bytes(response.body))
    )
    assert (str(result), result.status) == (str(make(kind)), PROBLEMS[kind][0])
    # Damage and bugs are the service's own; of conflicts and of invalid values, HTTP has one kind.
    expected = {
        house.ColumnsError: house.InputError,
        house.EmptyError: house.InputError,
        house.PackageError: house.InputError,
        house.CorruptError: house.RecalibError,
        house.FencedError: house.ConflictError,
        house.ExistsError: house.ConflictError,
    }.get(kind, kind)
    assert isinstance(result, expected)
    if isinstance(result, house.InputError):
        assert (result.field, result.found, result.accepted) == ("logits", "x", "y")
    if isinstance(result, house.LimitedError):
        assert result.retry_after_seconds == 7
    if isinstance(result, house.NotFoundError):
        assert (result.kind, result.name) == ("resource", "/v1/models/m")


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b=c", "a#b", "%2e%2e", "é", "a b", "\0"])
def test_names_are_escaped_in_paths(client_of: Clients, flaky: Flaky, name: str) -> None:
    """Any name is one path segment."""
    flaky.will(says(404))
    with pytest.raises(ResourceNotFoundError):
        client_of(flaky.url).get_dataset(name, "d")
    v1, models, sent, datasets, d = flaky.received[0].path[1:].split("/")
    assert (v1, models, datasets, d) == ("v1", "models", "datasets", "d")
    assert unquote(sent) == name
    assert sent.isascii()


def test_empty_name_is_rejected(client_of: Clients, flaky: Flaky) -> None:
    with pytest.raises(house.InputError, match="name: found an empty name"):
        client_of(flaky.url).get_model("")
    assert flaky.received == []


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "http://host?x=1", "x y"],
)
def test_invalid_urls_are_rejected(kind: str, url: str) -> None:
    with pytest.raises(house.InputError, match=r"url: found .*accepted: the address of a server"):
        Either(kind, url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_invalid_timeouts_are_rejected(kind: str, timeout: float) -> None:
    with pytest.raises(house.InputError, match="timeout: found"):
        Either(kind, "http://host", timeout=timeout)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_pause": -1.0}, {"longest_pause": -1.0}])
def test_invalid_retries_are_rejected(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(house.InputError, match=f"retries.{name}: found"):
        Retries(**wrong)


def test_server_url_with_a_path(client_of: Clients, flaky: Flaky) -> None:
    flaky.will(says(200, MODEL))
    client_of(f"{flaky.url}/team/recalib/").get_model("m")
    assert flaky.received[0].path == "/team/recalib/v1/models/m"


def test_options_that_json_cannot_encode_are_rejected(client_of: Clients, flaky: Flaky) -> None:
    with pytest.raises(house.InputError, match="body: found"):
        client_of(flaky.url).fit("m", "d", options={"bins": object()})
    with pytest.raises(house.InputError, match="body: found a ndarray"):
        client_of(flaky.url).fit("m", "d", options={"bins": np.ones(3)})
    assert flaky.received == []
