"""Labels from files: once each, resumed by a manifest, bad rows reported."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib.client import Client, ResourceNotFoundError, Retries
from recalib.errors import InputError
from recalib.ingest import ingest_files
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.client.flaky import Flaky, problem, says

__all__ = ["cli"]


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    with Flaky() as server:
        yield server


@pytest.fixture
def client(flaky: Flaky) -> Iterator[Client]:
    with Client(flaky.url, retries=Retries(1)) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two labels as lines, after a line that is none, and two in Parquet."""
    folder = tmp_path / "labels"
    folder.mkdir()
    rows = [{"prediction_id": f"p{number}", "label": number} for number in range(2)]
    lines = ["no json", "", *map(json.dumps, rows)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    # A row without a label is none.
    table = pa.table({"prediction_id": ["p2", "p3"], "label": ["cat", None]})
    pq.write_table(table, folder / "b.parquet")
    (folder / "_manifest.txt").write_text("not labels")
    return folder


def _answer(*statuses: str) -> Any:
    items = [{"status": status, "reason": "why"} for status in statuses]
    return says(200, {"counts": {}, "items": items})


def test_labels_carry_groups_as_text_or_numbers(
    client: Client, flaky: Flaky, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"prediction_id": "p0", "label": 1, "group": "s7"}')
    columns = {"prediction_id": ["p1", "p2"], "label": [1, 2], "group": [7, None]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    flaky.will(_answer("accepted"), _answer("accepted", "accepted"))
    assert ingest_files(client, "m", str(tmp_path)).labels == {"accepted": 3}
    sent = [row for request in flaky.received for row in json.loads(request.body)]
    assert [row.get("group") for row in sent] == ["s7", "7", None]


def test_labels_of_multilabel_rows_are_lists(client: Client, flaky: Flaky, tmp_path: Path) -> None:
    """In both formats; an empty list is a row without labels."""
    (tmp_path / "a.jsonl").write_text('{"prediction_id": "p0", "label": [2, "red"]}')
    pq.write_table(
        pa.table({"prediction_id": ["p1", "p2"], "label": [[0, 2], []]}), tmp_path / "b.parquet"
    )
    flaky.will(_answer("accepted"), _answer("accepted", "accepted"))
    assert ingest_files(client, "m", str(tmp_path)).to_dict()["labels"] == {"accepted": 3}
    received = [json.loads(request.body) for request in flaky.received]
    assert [label["label"] for labels in received for label in labels] == [[2, "red"], [0, 2], []]


def test_files_are_ingested_once(
    folder: Path, client: Client, flaky: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that has changed, or was not finished, is read again."""
    manifest = folder.parent / "done.jsonl"
    flaky.will(_answer("accepted", "conflict"), problem(404, "none"))
    with caplog.at_level(logging.ERROR), pytest.raises(ResourceNotFoundError):
        ingest_files(client, "m", str(folder), manifest=manifest)
    assert "a.jsonl, row 1, is not stored" in caplog.text
    assert "a.jsonl, row 4, is not stored: conflict: why" in caplog.text
    flaky.will(_answer("accepted"))
    progress = ingest_files(client, "m", str(folder), manifest=manifest)
    assert progress.to_dict() == {
        "items": 1, "skipped": 1, "malformed": 1, "labels": {"accepted": 1},
    }  # fmt: skip
    assert "b.parquet, row 2, is not stored" in caplog.text
    assert json.loads(flaky.received[-1].body) == [{"prediction_id": "p2", "label": "cat"}]
    (folder / "a.jsonl").write_text(json.dumps({"prediction_id": "p9", "label": 1}))
    flaky.will(_answer("duplicate"))
    progress = ingest_files(client, "m", str(folder), manifest=manifest)
    assert (progress.items, progress.skipped, progress.labels) == (1, 1, {"duplicate": 1})


def test_manifest_is_complete_after_a_crash(folder: Path, client: Client, flaky: Flaky) -> None:
    """A line that was cut off does not damage the next."""
    manifest = folder.parent / "done.jsonl"
    manifest.write_text('{"file": "a.js')
    (folder / "b.parquet").unlink()
    flaky.will(_answer("accepted", "accepted"))
    for skipped in (0, 1):
        progress = ingest_files(client, "m", str(folder), manifest=manifest)
        assert progress.skipped == skipped
    assert [line[:8] for line in manifest.read_text().splitlines()] == ['{"file":'] * 2


@pytest.mark.parametrize(
    "option", ["--topic=t", "--group=g", "--dead-letters=d", "--option=a=b", "--idle=0"]
)
def test_options_of_kafka_are_rejected_with_files(cli: Cli, option: str) -> None:
    done = cli("ingest", "none.jsonl", "--server", "http://unused", "--model", "m", option)
    assert (done.status, option.split("=")[0] in done.err) == (2, True)


def test_manifest_is_rejected_with_kafka(cli: Cli) -> None:
    place = ("--kafka", "127.0.0.1:1", "--topic", "t", "--group", "g", "--manifest", "done")
    done = cli("ingest", *place, "--option=nosuch=1", "--server", "http://unused", "--model", "m")
    assert (done.status, "--manifest" in done.err) == (2, True)


def test_command_sends_files(cli: Cli, folder: Path, flaky: Flaky) -> None:
    """With progress as lines of JSON; a source or Kafka is required, not both."""
    (folder / "b.parquet").unlink()
    flaky.will(_answer("accepted", "duplicate"))
    done = cli("ingest", str(folder), "--server", flaky.url, "--model", "m", "--json")
    assert done.status == 0
    assert json.loads(done.out.splitlines()[-1]) == {
        "items": 1, "skipped": 0, "malformed": 1, "labels": {"accepted": 1, "duplicate": 1},
    }  # fmt: skip
    for more in ((), (str(folder), "--kafka", "broker:9092"), ("--kafka", "broker:9092")):
        assert cli("ingest", *more, "--server", flaky.url, "--model", "m").status == 2


def test_other_files_are_rejected(tmp_path: Path, client: Client, flaky: Flaky) -> None:
    with pytest.raises(InputError, match="nothing at"):
        ingest_files(client, "m", str(tmp_path))
    pq.write_table(pa.table({"label": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="without prediction_id"):
        ingest_files(client, "m", str(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"a\.parquet"):
        ingest_files(client, "m", str(tmp_path))
    assert flaky.received == []
