"""The pages of the reference that the build of the site writes from the code."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
from starlette.testclient import TestClient

from docs import reference_rest, reference_tables
from recalib import errors
from recalib.cli import root_command
from recalib.client import Client
from recalib.settings import Settings
from service.app import create_app
from service.http.openapi import TAGS
from service.operations import OPERATIONS


def firsts(page: str) -> set[str]:
    """Return the code in the first cell of each row of all tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))


def test_tables_of_settings_errors_and_formats_are_complete() -> None:
    names = {f"RECALIB_{name.upper()}" for name in Settings.model_fields}
    assert firsts(reference_tables.settings()) == names
    assert firsts(reference_tables.error_classes()) == {*errors.__all__} - {"RecalibWarning"}
    assert "| `RECALIB_PORT` | `8000` | whole number, 0 to 65535 |" in reference_tables.settings()
    assert "`.parquet`" in reference_tables.formats()


def test_prometheus_metrics_have_labels_and_meanings() -> None:
    page = reference_tables.prometheus()
    assert "| `recalib_http_requests_total` | counter | `method`, `route`, `status` |" in page
    assert "| `recalib_calibration_state` | gauge | `model`, `calibrator`, `state` |" in page
    assert len(firsts(page)) > 40
    assert not re.search(r"\| \|$", page, re.MULTILINE)


def test_every_command_is_listed_with_its_usage() -> None:
    page = reference_tables.commands()
    for path, _ in reference_tables.walk(root_command(), ["recalib"]):
        assert f"## `{' '.join(path)}`" in page
        assert f"\n{' '.join(path)} " in page


def test_rest_page_has_every_operation_and_links_every_schema() -> None:
    page, schemas = reference_rest.rest(), reference_rest.schemas()
    names = {name for name, operation in OPERATIONS.items() if operation.path}
    in_document = set(re.findall(r"^Operation `(\w+)`", page, re.MULTILINE))
    in_client = set(re.findall(r"^Operation `(\w+)`, also in Python", page, re.MULTILINE))
    assert in_client == {name for name in in_document if hasattr(Client, name)}
    assert in_document == {
        operation["operationId"]
        for path in reference_rest.openapi()["paths"].values()
        for operation in path.values()
    }
    assert in_document <= names
    headings = {heading.lower() for heading in re.findall(r"^## (\S+)$", schemas, re.MULTILINE)}
    assert set(re.findall(r"rest-schemas.md#(\w+)", page)) <= headings
    assert [title.lower() for title in re.findall(r"^## (.+)$", page, re.MULTILINE)] == [
        tag["name"] for tag in TAGS
    ]


def test_grpc_page_has_services_and_messages_with_the_comments_of_the_proto_file() -> None:
    page = reference_rest.grpc()
    row = "| `CreateModel` | [CreateModelRequest](#message-createmodelrequest) |"
    assert f"{row} [Model](#message-model) | Registers a classifier." in page
    assert set(re.findall(r"\(#message-(\w+)\)", page)) <= {
        name.lower() for name in re.findall(r"^## Message (\w+)$", page, re.MULTILINE)
    }


def test_every_property_and_parameter_is_described_and_every_json_body_has_an_example() -> None:
    document = reference_rest.openapi()
    schemas = document["components"]["schemas"]
    properties = [
        (name, key, value)
        for name, schema in schemas.items()
        for key, value in schema.get("properties", {}).items()
    ]
    assert len(properties) > 400
    assert [place for *place, value in properties if not value.get("description")] == []
    bodies = 0
    for path in document["paths"].values():
        for operation in path.values():
            assert all(parameter["description"] for parameter in operation.get("parameters", ()))
            for content in operation.get("requestBody", {}).get("content", {}).values():
                if content["schema"].get("format") != "binary":
                    schema = {**content["schema"], "components": document["components"]}
                    jsonschema.validate(content["example"], schema)
                    bodies += 1
    assert bodies >= 20


def test_the_document_and_the_console_link_the_site(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, docs_url="https://example.com/recalib/")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        assert client.get("/openapi.json").json()["externalDocs"]["url"] == settings.docs_url
        page = client.get("/console/models").text
    assert f'href="{settings.docs_url}">Documentation' in page
