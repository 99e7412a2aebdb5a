"""Grafana dashboards match their generator, and every query returns data."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import numpy as np
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from recalib.registry import Registry
from tests.end_to_end.conftest import programs
from tests.end_to_end.programs import Programs, Server, until
from tests.requirements import program_path
from tests.training.watched import WATCHING, Stream, a_champion
from training.monitoring_job import watch

__all__ = ["programs"]

_FOLDER = Path(__file__).resolve().parents[2] / "deploy"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", _FOLDER / "grafana" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


def queries() -> list[tuple[str, str]]:
    """Return every query of every committed panel with the panel's title."""
    result = []
    for name in GENERATOR.DASHBOARDS:
        board = json.loads((_FOLDER / "grafana" / f"{name}.json").read_text())
        for panel in board["panels"]:
            result += [(f"{name}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return result


@pytest.mark.parametrize("name", GENERATOR.DASHBOARDS)
def test_committed_dashboards_match_the_generator(name: str) -> None:
    """A dashboard is also valid for the SDK: it round-trips unchanged."""
    text = (_FOLDER / "grafana" / f"{name}.json").read_text()
    assert text == GENERATOR.render(name), "python deploy/grafana/generate.py"
    read = Dashboard.from_json(json.loads(text))
    assert JSONEncoder(sort_keys=True, indent=2).encode(read) + "\n" == text


@pytest.fixture
def prometheus(tmp_path: Path) -> str:
    """The path of the program, or a skip with the reason."""
    return program_path("prometheus", "prometheus")


@pytest.fixture
def scraping(prometheus: str, tmp_path: Path, programs: Programs) -> Iterator[tuple[Server, Any]]:
    """A server, and a Prometheus with our rules that scrapes it every second."""
    with programs.serve("--job-workers", 0, monitor_seconds=3600) as server:
        rules = tmp_path / "recording.yml"
        text = (_FOLDER / "prometheus" / "recording.yml").read_text()
        rules.write_text(re.sub(r"interval: \w+", "interval: 1s", text))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "recalib",
                    "static_configs": [{"targets": [urlsplit(server.url).netloc]}],
                }
            ],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        with (tmp_path / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    prometheus,
                    f"--config.file={tmp_path / 'prometheus.yml'}",
                    f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stderr=log,
            )
        try:
            yield server, _address(process, tmp_path / "prometheus.log")
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    def look() -> str:
        assert process.poll() is None, log.read_text()
        match = re.search(r"address=(127\.0\.0\.1:[1-9]\d*)", log.read_text())
        return "" if match is None else f"http://{match[1]}"

    return until(look, "Prometheus to listen")


@pytest.mark.slow
def test_every_query_of_every_panel_returns_data(
    scraping: tuple[Server, str], programs: Programs
) -> None:
    """The service has traffic of two classes, and labels that mature."""
    server, address = scraping
    registry = Registry(
        f"sqlite:///{programs.home / 'recalib.db'}", (programs.home / "blobs").as_uri()
    )
    model = a_champion(
        registry, replace(WATCHING, segments=("eu",), selection_ratio=2.0), classes=2
    )
    stream = Stream(registry, model)
    over = threading.Event()

    def traffic() -> None:
        rows = np.random.default_rng(0).normal(0, 3, (5, 2))
        while not over.wait(0.2):
            ids = server.calibrate(rows, model="resnet")["prediction_ids"]
            items = [{"prediction_id": prediction_id, "label": 1} for prediction_id in ids]
            server.ask("POST", "/v1/models/resnet/labels", json=items)
            server.client.get("/v1/models/none")

    thread = threading.Thread(target=traffic)
    thread.start()

    def has_data() -> bool:
        # Send minute by minute, so that counters grow between scrapes. Continue after the cohorts
        # that monitoring has read: a clock that leaps makes recent traffic mature.
        with registry.reading() as tx:
            stream.now = tx.clock()
            through = tx.monitors.through(model, [1]).get(1, 0.0)
        stream.send(300, ago=stream.now - max(through, stream.now - 6_000))
        watch(registry, model)
        time.sleep(0.5)
        return not _empty(address)

    try:
        until(has_data, "data in every panel")
    except AssertionError:
        raise AssertionError(f"without data: {_empty(address)}") from None
    finally:
        over.set()
        thread.join()
        registry.close()


def _empty(address: str) -> list[str]:
    """Return the panels with a query without data."""
    panels = []
    for title, query in queries():
        parameters = urlencode({"query": query.replace("$model", ".*")})
        answer = httpx2.get(f"{address}/api/v1/query?{parameters}", timeout=30).json()
        assert answer["status"] == "success", (title, query, answer)
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        if not any(math.isfinite(value) for value in values):
            panels.append(f"{title}: {query}")
    return panels
