"""Request ids: in answers of every route and in log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import grpc
import pytest

from recalib.observability.logs import ACCESS, record_fields
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.request_ids import request_id_of
from tests.end_to_end.programs import until
from tests.service.conftest import Service
from tests.service.stubs import Rpc

pytestmark = pytest.mark.sqlite_only

_ROUTES = ("/v1/models", "/v1/models/{model}", "/v1/models/{model}/calibrate", "unmatched")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class RecordList(logging.Handler):
    """Stores the fields of every log line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record_fields(record))


@pytest.fixture
def accesses() -> Iterator[list[dict[str, object]]]:
    """The lines of the enabled access log."""
    records, level = RecordList(), ACCESS.level
    ACCESS.addHandler(records)
    ACCESS.setLevel(logging.INFO)
    yield records.lines
    ACCESS.setLevel(level)
    ACCESS.removeHandler(records)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-request-id": "order-17:3.a_B"}, "order-17:3.a_B"),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, TRACE),
        ({"traceparent": f"cc-{TRACE}-00f067aa0ba902b7-01-more"}, TRACE),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "x-request-id": "mine"}, "mine"),
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, None),
        ({"traceparent": f"00-{TRACE.upper()}-00f067aa0ba902b7-01"}, None),
        ({"traceparent": "00-1-2-3"}, None),
        ({"x-request-id": ""}, None),
        ({"x-request-id": "a" * 129}, None),
        ({"x-request-id": "two words"}, None),
        ({"x-request-id": "a\r\nSet-Cookie: b"}, None),
        ({"x-request-id": "\x1b[31m"}, None),
        ({}, None),
    ],
)
def test_valid_request_ids_are_kept(headers: dict[str, str], expected: str | None) -> None:
    """Invalid ids are replaced by new, unique ones."""
    sent = {name.encode(): value.encode() for name, value in headers.items()}
    request_id = request_id_of(sent)
    if expected is not None:
        assert request_id == expected
    else:
        assert len(request_id) == 24
        assert request_id not in (TRACE, request_id_of(sent))


def test_answers_and_log_lines_have_the_request_id(
    service: Service, accesses: list[dict[str, object]]
) -> None:
    """Calibration, other routes, errors, and an unknown path."""
    service.model()
    mine = {"X-Request-ID": "mine"}
    for verb, path in [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/none"),
        ("GET", "/nowhere"),
        ("POST", "/v1/models/digits/calibrate"),
    ]:
        accesses.clear()
        answer = service.client.request(verb, path, headers=mine)
        assert answer.headers.get_list("x-request-id") == ["mine"], path
        (line,) = accesses
        assert line["request_id"] == "mine"
        assert line["action"] == "request"
        assert (line["method"], line["status"]) == (verb, answer.status_code)
        assert isinstance(line["milliseconds"], float)
        # The route template: a client's path can contain any text.
        assert line["route"] in _ROUTES
    request_ids = [service.client.get("/livez").headers["x-request-id"] for _ in range(2)]
    assert len(set(request_ids)) == 2


def test_rpcs_have_request_ids(
    service: Service, rpc: Rpc, accesses: list[dict[str, object]]
) -> None:
    """In trailing metadata, also of errors."""
    sent = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),)
    listing = rpc.channel.unary_unary(
        "/recalib.v1.Models/ListModels",
        request_serializer=pb.ListModelsRequest.SerializeToString,
    )
    _, call = listing.with_call(pb.ListModelsRequest(), metadata=sent, timeout=60)
    assert dict(call.trailing_metadata())["x-request-id"] == TRACE
    with pytest.raises(grpc.RpcError) as excinfo:
        rpc.models.get_model(pb.GetModelRequest(model="none"), metadata=(("x-request-id", "a"),))
    assert dict(excinfo.value.trailing_metadata())["x-request-id"] == "a"
    until(lambda: len(accesses) == 2, "the line, which comes after the answer")
    assert [line["request_id"] for line in accesses] == [TRACE, "a"]
    assert [line["status"] for line in accesses] == ["OK", "NOT_FOUND"]
    assert json.dumps(accesses)
