"""Traces sent to an OTLP/HTTP collector: requests, RPCs, and jobs in another process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import Programs, until
from tests.fitting.conftest import draw

pytestmark = pytest.mark.slow

TRACES = [f"{number}bf92f3577b34da6a3ce929d0e0e4736" for number in range(4)]
PARENT = "00f067aa0ba902b7"


@dataclass
class Collector:
    """The received spans and resources."""

    url: str = ""
    #: Pairs of program and span.
    spans: list[tuple[str, Any]] = field(default_factory=list)

    def take(self, content: bytes) -> None:
        for of in ExportTraceServiceRequest.FromString(content).resource_spans:
            named = {
                attribute.key: attribute.value.string_value for attribute in of.resource.attributes
            }
            program = named["service.name"]
            self.spans += [(program, span) for scope in of.scope_spans for span in scope.spans]

    def of_trace(self, trace: str) -> dict[str, tuple[str, Any]]:
        """Return the spans of a trace by name."""
        return {
            span.name: (program, span)
            for program, span in self.spans
            if span.trace_id.hex() == trace
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            collector.take(content)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield collector
        server.shutdown()
        thread.join()


def attributes(one: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in one.attributes
    }


def test_trace_continues_through_the_job_queue(programs: Programs, collector: Collector) -> None:
    """From the client to the worker; small requests and RPCs have spans as well."""
    rows, labels = draw(200, 4, 3.0)
    sent = [{"traceparent": f"00-{trace}-{PARENT}-01"} for trace in TRACES]
    environment = {"otlp_endpoint": collector.url + "/", "log_format": "json", "access_log": True}
    with programs.serve(**environment) as server:
        server.model()
        server.upload(rows, labels)
        body = {"dataset": "validation", "promote": True}
        job = server.ask("POST", "/v1/models/digits/calibrators", json=body, headers=sent[0])["id"]
        server.finished(job)
        # On the fast path.
        answer = server.client.post(
            "/v1/models/digits/calibrate", json={"logits": rows[:1].tolist()}, headers=sent[1]
        )
        assert answer.headers["x-request-id"] == TRACES[1]
        server.client.get("/v1/models/none", headers={"traceparent": "not one"})
        with grpc.insecure_channel(server.grpc_url) as channel:
            listing = channel.unary_unary(
                "/recalib.v1.Models/ListModels",
                request_serializer=pb.ListModelsRequest.SerializeToString,
            )
            listing(pb.ListModelsRequest(), metadata=tuple(sent[2].items()), timeout=60)
        assert server.stop() == 0
        until(lambda: "job fit" in collector.of_trace(TRACES[0]), "the worker's span")
        log = server.log()

    of_fit = collector.of_trace(TRACES[0])
    program, request = of_fit["POST /v1/models/{model}/calibrators"]
    assert (program, request.parent_span_id.hex()) == ("recalib-server", PARENT)
    assert attributes(request)["http.response.status_code"] == 202
    program, done = of_fit["job fit"]
    assert (program, done.parent_span_id) == ("recalib-worker", request.span_id)
    assert attributes(done)["recalib.job.id"] == job
    assert done.start_time_unix_nano >= request.start_time_unix_nano
    assert done.status.code == Status.STATUS_CODE_UNSET

    program, small = collector.of_trace(TRACES[1])["POST /v1/models/{model}/calibrate"]
    assert (program, small.parent_span_id.hex()) == ("recalib-server", PARENT)
    assert small.end_time_unix_nano > small.start_time_unix_nano
    _, rpc = collector.of_trace(TRACES[2])["recalib.v1.Models/ListModels"]
    assert attributes(rpc)["rpc.grpc.status_code"] == "OK"
    names = [span.name for _, span in collector.spans]
    assert names.count("GET /v1/models/{model}") == 1  # in a separate trace
    # The logs of both programs have the same trace ids.
    assert f'"request_id": "{TRACES[1]}"' in log
    assert f'"job_id": "{job}"' in log


def test_disabled_telemetry_imports_nothing() -> None:
    """FastAPI itself imports the API, whose calls then do nothing."""
    program = (
        "import sys; from recalib.settings import Settings; from service.app import create_app; "
        "import training.main; from recalib.observability import telemetry; "
        "create_app(Settings()); "
        "telemetry.start_request_span('x'); telemetry.end_request_span('x', 1.0); "
        "assert telemetry.current_traceparent() is None; "
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', "
        "'opentelemetry.exporter', 'opentelemetry.proto'))])"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"
