"""The client covers and documents every operation of the service."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from recalib.client import AsyncClient, Client, InvalidRequestError, Retries, ServiceError
from recalib.client.clients import Operations
from recalib.client.drivers import ListOperation, Operation
from tests.client.flaky import BATCH, DATASET, Flaky, problem, says
from tests.service.documented import answers

_ROOT = Path(__file__).parents[2]

LOGITS, LABELS = np.zeros((4, 3)), np.array([0, 1, 2, 0])

#: Operation of the API description -> client call.
CALLS: dict[str, Callable[[Client], Any]] = {
    "create_model": lambda client: client.create_model("m", 3),
    "list_models": lambda client: next(client.list_models()),
    "get_model": lambda client: client.get_model("m"),
    "upload_dataset": lambda client: client.upload_dataset("m", "d", LOGITS, LABELS),
    "list_datasets": lambda client: next(client.list_datasets("m")),
    "get_dataset": lambda client: client.get_dataset("m", "d"),
    "get_dataset_content": lambda client: client.download_dataset("m", "d", "d.npz"),
    "create_calibrator": lambda client: client.fit("m", "d"),
    "list_calibrators": lambda client: next(client.list_calibrators("m")),
    "get_calibrator": lambda client: client.get_calibrator("m", 1),
    "get_calibrator_parameters": lambda client: client.download_calibrator("m", "c.calib", 1),
    "get_calibrator_onnx": lambda client: client.download_calibrator("m", "c.onnx", 1),
    "delete_batch": lambda client: client.delete_batch("m", "j"),
    "create_batch": lambda client: client.create_batch("m", dataset="d"),
    "get_batch": lambda client: client.get_batch("m", "j"),
    "get_batch_content": lambda client: client.download_batch("m", "j", "p.npz"),
    "list_batches": lambda client: next(client.list_batches("m")),
    "delete_evaluation": lambda client: client.delete_evaluation("m", "j"),
    "create_evaluation": lambda client: client.evaluate("m", "d", [1]),
    "get_evaluation": lambda client: client.get_evaluation("m", "j"),
    "get_evaluation_report": lambda client: client.download_report("m", "j", "r.html"),
    "list_evaluations": lambda client: next(client.list_evaluations("m")),
    "list_audit": lambda client: next(client.list_audit(actor="web")),
    "list_events": lambda client: next(client.list_events(models="m", types=["job"])),
    "create_webhook": lambda client: client.create_webhook("https://example.com/", types="job"),
    "list_webhooks": lambda client: next(client.list_webhooks(model="m")),
    "get_webhook": lambda client: client.get_webhook("w"),
    "update_webhook": lambda client: client.update_webhook("w", enabled=True),
    "rotate_webhook_secret": lambda client: client.rotate_webhook_secret("w"),
    "delete_webhook": lambda client: client.delete_webhook("w"),
    "list_deliveries": lambda client: next(client.list_deliveries("w", state="dead")),
    "redeliver": lambda client: client.redeliver("w", 7),
    "list_aliases": lambda client: client.list_aliases("m"),
    "set_alias": lambda client: client.promote("m", 1),
    "get_alias_history": lambda client: client.alias_history("m"),
    "calibrate": lambda client: client.calibrate("m", LOGITS),
    "add_labels": lambda client: client.add_labels("m", ["i"], [0]),
    "add_observations": lambda client: client.add_observations("m", LOGITS, LABELS, LABELS),
    "add_traffic": lambda client: client.add_traffic("m", []),
    "create_refit": lambda client: client.refit("m"),
    "create_replay": lambda client: client.replay("m", "log.parquet"),
    "update_model": lambda client: client.update_model("m", tags=["vision"]),
    "update_dataset": lambda client: client.update_dataset("m", "d", description="of May"),
    "update_calibrator": lambda client: client.update_calibrator("m", 2, tags=["vision"]),
    "delete_model": lambda client: client.delete_model("m"),
    "delete_dataset": lambda client: client.delete_dataset("m", "d"),
    "delete_calibrator": lambda client: client.delete_calibrator("m", 2, force=True),
    "delete_alias": lambda client: client.delete_alias("m", "champion", force=True),
    "delete_training_run": lambda client: client.delete_run("j"),
    "drop_candidate": lambda client: client.drop_candidate("m", 2),
    "list_monitoring_history": lambda client: next(client.list_monitoring_history("m", version=1)),
    "get_monitoring": lambda client: client.get_monitoring("m"),
    "set_monitoring": lambda client: client.set_monitoring("m", alpha=0.01),
    "create_training_run": lambda client: client.train({"model": {"name": "linear"}}),
    "get_training_run_file": lambda client: client.download_run_file("j", "w", "w"),
    "list_jobs": lambda client: next(client.list_jobs()),
    "get_job": lambda client: client.get_job("j"),
    "cancel_job": lambda client: client.cancel_job("j"),
    "readyz": lambda client: client.ready(),
}

#: Answers to the requests that precede an operation: an upload looks for its model, and a download
#: reads the description.
FIRST: dict[str, Any] = {
    "upload_dataset": {},
    "get_dataset_content": DATASET,
    "get_batch_content": BATCH,
    "create_replay": {},
}

#: Operations that the client excludes on purpose.
ABSENT = {
    "list_model_events": "`list_events` with `models` has the same events",
    "livez": "for a supervisor that restarts processes",
    "metrics": "for Prometheus",
}
#: Path prefix of the Open Inference Protocol, which other clients use.
OTHERS = "/v2"


def test_client_covers_every_operation_or_excludes_it(
    flaky: Flaky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call sends the request of its operation in the API description."""
    monkeypatch.chdir(tmp_path)
    Path("log.parquet").write_bytes(b"PAR1")
    described = {
        operation["operationId"]: (verb.upper(), re.sub(r"\{\w+\}", "[^/]+", path))
        for path, verbs in answers().document["paths"].items()
        for verb, operation in verbs.items()
        if not path.startswith(OTHERS)
    }
    assert set(described) == set(CALLS) | set(ABSENT)
    posts = {}
    for name, call in CALLS.items():
        flaky.received.clear()
        first = [says(200, FIRST[name])] if name in FIRST else []
        flaky.will(*first, problem(422, "No."))
        with Client(flaky.url, retries=Retries(1)) as client, pytest.raises(ServiceError):
            call(client)
        sent = flaky.received[-1]
        verb, pattern = described[name]
        assert sent.method == verb, name
        assert re.fullmatch(pattern, urlsplit(sent.path).path), name
        if verb == "POST":
            posts[name] = "idempotency-key" in sent.headers
    # Retries rely on this: other methods, and requests without a key, are idempotent.
    assert posts == {
        "create_model": True,
        "create_calibrator": True,
        "create_batch": True,
        "create_evaluation": True,
        "create_training_run": True,
        "calibrate": False,
        "add_labels": False,
        "add_observations": False,
        "add_traffic": True,
        "create_refit": True,
        "create_replay": True,
        "create_webhook": True,
        "rotate_webhook_secret": True,
        "redeliver": True,
    }


def test_client_has_every_request_parameter() -> None:
    """Request bodies and parameters of the API, under the methods' parameter names."""
    schemas = answers().document["components"]["schemas"]
    fields = {
        Client.fit: set(schemas["CalibratorCreate"]["properties"]) - {"parameters", "row_digests"},
        Client.create_batch: set(schemas["BatchCreate"]["properties"]),
        Client.evaluate: set(schemas["EvaluationCreate"]["properties"]),
        Client.create_model: set(schemas["ModelCreate"]["properties"]),
        Client.promote: set(schemas["AliasSet"]["properties"]),
    }
    for method, names in fields.items():
        assert names <= set(inspect.signature(method).parameters), method


def operations() -> list[str]:
    return [name for name, method in vars(Operations).items() if not name.startswith("_")]


@pytest.mark.parametrize("name", operations())
def test_both_clients_have_documented_methods(name: str) -> None:
    """`help` shows parameters and the first sentence; coroutines are recognised."""
    assert isinstance(vars(Operations)[name], Operation | ListOperation)
    first, second = getattr(Client, name), getattr(AsyncClient, name)
    assert first.__doc__ == second.__doc__
    assert inspect.signature(first) == inspect.signature(second)
    assert inspect.iscoroutinefunction(second) == isinstance(vars(Operations)[name], Operation)
    assert not inspect.iscoroutinefunction(first)
    described = pydoc.render_doc(Client, renderer=pydoc.plaintext)
    assert f" {name}(" in described
    assert first.__doc__.splitlines()[0] in described


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_methods_of_a_client_are_equal(kind: type[Client | AsyncClient]) -> None:
    """As those of any object, so that they are keys of caches and can be patched."""
    client = kind("http://127.0.0.1:1")
    assert client.calibrate == client.calibrate
    assert client.list_events == client.list_events
    assert client.calibrate != kind("http://127.0.0.1:1").calibrate


def test_missing_httpx2_is_reported() -> None:
    """The module loads; constructing a client names the missing package."""
    code = (
        "import sys\n"
        "import recalib.client\n"
        "assert not {'httpx2', 'rich', 'pyarrow', 'onnxruntime'} & set(sys.modules)\n"
        "sys.modules['httpx2'] = None\n"
        "for kind in (recalib.client.Client, recalib.client.AsyncClient):\n"
        "    try:\n"
        "        kind('http://127.0.0.1:8000')\n"
        "    except recalib.client.InputError as error:\n"
        "        print(error)\n"
    ).replace("recalib.client.InputError", "__import__('recalib.errors').errors.InputError")
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    message = "recalib.client: found no package httpx2; accepted: pip install 'recalib[client]'\n"
    assert (process.returncode, process.stdout) == (0, 2 * message), process.stderr


def test_errors_of_one_request_do_not_reach_another(flaky: Flaky) -> None:
    """A client works after an error, and its connections are reused."""
    flaky.will(problem(422, "No.", {"field": "f", "found": "x", "accepted": "y"}))
    with Client(flaky.url) as client:
        for _ in range(3):
            with pytest.raises(InvalidRequestError, match="No"):
                client.get_model("m")
    assert len(flaky.received) == 3
    assert flaky.connections == 1
