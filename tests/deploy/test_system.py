"""`docker compose up` as processes: the main workflow, from no secrets to a scraped label."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib.client import Client
from recalib.errors import UnauthorizedError
from tests.deploy.backups import age, age_program
from tests.deploy.composed import ROOT, SERVICES, once
from tests.deploy.containers import Containers, can_confine, free_port
from tests.end_to_end.conftest import programs
from tests.end_to_end.programs import Programs, recalib_command, until
from tests.fitting.conftest import draw
from tests.registry.fixtures import execute
from tests.requirements import program_path
from tests.service.conftest import npz

pytestmark = pytest.mark.slow

__all__ = ["programs"]


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """The address of an object store."""
    port = free_port()
    server = Path(sys.executable).with_name("moto_server")
    with (tmp_path / "moto.log").open("wb") as log:
        process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], stderr=log)
    address = f"http://127.0.0.1:{port}"

    until(lambda: _answers(f"{address}/moto-api/"), "the object store")
    yield address
    process.kill()
    process.wait()


@pytest.fixture
def containers(tmp_path: Path, programs: Programs, s3: str) -> Iterator[Containers]:
    folder = tmp_path / "containers"
    folder.mkdir()
    addresses = {
        "http://s3:8333": s3,
        "server:8000": f"127.0.0.1:{free_port()}",
        "0.0.0.0:9090": f"127.0.0.1:{free_port()}",
    }
    addresses["http://127.0.0.1:9090"] = f"http://{addresses['0.0.0.0:9090']}"
    containers = Containers(folder, programs, addresses)
    yield containers
    containers.clean_up()


def create_database(containers: Containers, postgresql_url: str) -> None:
    """Create the role and the database of the database service on this machine.

    The address is all that differs from what the service `secrets` has written.
    """
    secrets = containers.volume("recalib-secrets")
    password = (containers.volume("postgres-secrets") / "password").read_text().strip()
    file = secrets / "database-url"
    query = "sslmode=verify-full&sslrootcert=/secrets/postgres-ca.crt"
    assert file.read_text() == f"postgresql://recalib:{password}@postgres/recalib?{query}\n"
    _, _, place = postgresql_url.partition("?host=")
    assert place
    environment = SERVICES["postgres"]["environment"]
    assert (environment["POSTGRES_USER"], environment["POSTGRES_DB"]) == ("recalib", "recalib")
    execute(
        postgresql_url,
        f"CREATE ROLE recalib LOGIN PASSWORD '{password}'",
        "CREATE DATABASE recalib OWNER recalib",
    )
    file.unlink()
    file.write_text(f"postgresql://recalib:{password}@/recalib?host={place}\n")


@pytest.fixture
def database(postgresql_url: str) -> Iterator[str]:
    """A PostgreSQL server, cleaned up after the test."""
    yield postgresql_url
    execute(
        postgresql_url,
        "DROP DATABASE IF EXISTS recalib WITH (FORCE)",
        "DROP ROLE IF EXISTS recalib",
    )


def test_composed_system_fits_and_serves(
    containers: Containers, database: str, tmp_path: Path
) -> None:
    """Services start in the order of `depends_on`."""
    age_program()
    containers.run("secrets")
    secrets = {
        path: path.read_text() for path in (containers.folder / "volumes").glob("*-secrets/*")
    }
    assert len(secrets) == 13
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o440, 0o444}
    containers.run("secrets")
    assert {path: path.read_text() for path in secrets} == secrets
    create_database(containers, database)
    key = (containers.volume("prometheus-secrets") / "recalib-key").read_text().strip()
    output = [containers.run(name) for name in ("prepare", "key")]
    assert key not in str(output)

    server, worker = containers.start("server"), containers.start("worker")
    # As in README.md: docker compose exec server recalib keys create ...
    create = ["keys", "create", "me", "--scope", "admin"]
    admin = containers.run("server", create).strip()
    url = f"http://{containers.addresses['server:8000']}"
    until(lambda: _answers(f"{url}/livez"), "the server to listen")
    containers.until_healthy("server")
    containers.until_healthy("worker")

    def may() -> bool:
        try:
            return isinstance(list(client.list_models()), list)
        except UnauthorizedError:
            return False

    logits, labels = draw(600, 4, 3.0)
    data = tmp_path / "val.npz"
    data.write_bytes(npz(logits, labels))
    with Client(url) as anonymous, pytest.raises(UnauthorizedError):
        anonymous.create_model("resnet", 4)
    with Client(url, api_key=admin) as client:
        until(may, "the key to be known")
        client.create_model("resnet", 4)
        client.upload_dataset("resnet", "val", data, progress=False)
        job = client.wait(client.fit("resnet", "val", promote=True), progress=False)
        assert job.result is not None
        assert job.result["version"] == 1
        job = client.wait(client.evaluate("resnet", "val"), progress=False)
        assert client.get_evaluation("resnet", job).results[1].fitted_rows == 600
        job = client.create_batch("resnet", dataset="val", format="npz")
        client.wait(job, progress=False)
        client.download_batch("resnet", job, tmp_path / "batch.npz", progress=False)
        _replayed(client, tmp_path / "log.parquet")
        answer = client.predict("resnet", logits[:40])
        batch = np.load(tmp_path / "batch.npz")["probabilities"]
        np.testing.assert_allclose(answer.probabilities, batch[:40], atol=1e-6)
        np.testing.assert_allclose(answer.probabilities.sum(1), 1, rtol=1e-5)
        assert client.add_labels("resnet", answer.prediction_ids, labels[:40]).counts == {
            "accepted": 40
        }
        assert client.update_model("resnet", tags=["shop"]).tags == ("shop",)
        client.delete_dataset("resnet", "val")
        assert list(client.list_datasets("resnet")) == []
        assert client.get_calibrator("resnet", 1).dataset is None
    # Prometheus may only read metrics.
    headers = {"Authorization": f"Bearer {key}"}
    text = httpx2.get(f"{url}/metrics", headers=headers, timeout=60).text
    assert 'recalib_labels_total{model="resnet",status="accepted"} 40' in text
    assert httpx2.get(f"{url}/v1/models", headers=headers, timeout=60).status_code == 403

    _restored(containers, tmp_path)
    if shutil.which("prometheus"):
        _scraped(containers)
    for process in (server, worker):
        process.terminate()
    assert [process.wait(60) for process in (server, worker)] == [0, 0]
    program_path("prometheus", "prometheus")  # else a skip, or a failure in CI


def _replayed(client: Client, path: Path) -> None:
    """A log of three days is the history of the champion, and the events have its states."""
    time = datetime.now(UTC).timestamp() - 3 * 86_400 * np.linspace(1, 0, 900)
    log = {"time": time, "confidence": np.full(900, 0.9), "correct": np.arange(900) % 10 > 4}
    pq.write_table(pa.table(log), path)
    job = client.wait(client.replay("resnet", path, progress=False), progress=False)
    assert job.result is not None
    assert job.result["state"] == "stale"
    history = list(client.list_monitoring_history("resnet"))
    assert len(history) == job.result["history"] > 0
    assert all(entry.replayed for entry in history)
    events = list(client.list_events(models="resnet"))
    assert {"job.succeeded", "alias.changed"} <= {event.type for event in events}
    states = [event.data for event in events if event.type == "monitoring.state_changed"]
    assert (states[0]["state"], states[0]["replayed"]) == ("stale", True)


def _restored(containers: Containers, tmp_path: Path) -> None:
    """The service `backup` makes an encrypted backup, which the operator's key restores."""
    service = containers.start("backup")
    containers.until_healthy("backup")
    (file,) = containers.volume("backups").iterdir()
    key = containers.volume("backup-secrets") / "key"
    home, archive = tmp_path / "restored", tmp_path / "backup.zip"
    assert age("--decrypt", "--identity", key, "--output", archive, file).returncode == 0
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RECALIB_")}
    command = recalib_command("restore", str(archive), "--home", str(home))
    process = subprocess.run(command, env=plain, capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
    assert (home / "recalib.db").exists()
    service.terminate()
    assert service.wait(60) == -signal.SIGTERM


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=30).status_code == 200
    except httpx2.TransportError:
        return False


def _scraped(containers: Containers) -> None:
    """Prometheus with the configuration of this repository scrapes the label."""
    place = containers.folder / "roots" / "prometheus" / "etc" / "recalib"
    shutil.copytree(ROOT / "deploy" / "prometheus", place)
    config = place / "prometheus.yml"
    text = config.read_text().replace(": 15s", ": 1s")
    # This machine has neither the host names nor the root folders of the containers.
    text = re.sub(
        r"dns_sd_configs:.*?\n  - job_name",
        f"static_configs: [{{targets: ['{containers.addresses['server:8000']}']}}]\n  - job_name",
        text,
        flags=re.DOTALL,
    )
    credentials = containers.localized("prometheus", "/secrets/recalib-key")
    config.write_text(text.replace("/secrets/recalib-key", credentials))
    containers.start("prometheus")
    address = containers.addresses["http://127.0.0.1:9090"]
    # promtool can run the engine's health check from 2.43 on; Debian has 2.42.
    until(lambda: _answers(f"{address}/-/healthy"), "Prometheus to be healthy")
    parameters = urlencode({"query": 'recalib_labels_total{status="accepted", job="recalib"}'})

    def label_is_scraped() -> bool:
        answer = httpx2.get(f"{address}/api/v1/query?{parameters}", timeout=30).json()
        return [series["value"][1] for series in answer["data"]["result"]] == ["40"]

    until(label_is_scraped, "the label in Prometheus")
    rules = httpx2.get(f"{address}/api/v1/rules", timeout=30).json()["data"]["groups"]
    assert {rule["type"] for group in rules for rule in group["rules"]} == {"alerting", "recording"}


def test_read_only_container_cannot_write(tmp_path: Path, programs: Programs) -> None:
    """Processes of the test above write only where the compose file permits."""
    if not can_confine():
        pytest.skip("making a file system read-only for one program needs root, and util-linux")
    containers = Containers(tmp_path / "containers", programs, {"server:8000": "127.0.0.1:0"})
    program = f"""
import pathlib
def writes(folder):
    try:
        pathlib.Path(folder, "x").touch()
        return True
    except OSError:
        return False
print(*map(writes, [{str(programs.temporary)!r}, {str(programs.home)!r}, "/", {str(tmp_path)!r}]))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
"""
    process = subprocess.run(
        containers.confined("server", [sys.executable, "-c", program]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split("\n")[0] == "True True False False", process.stderr
    assert process.stdout.split("\n")[1] == "['0000000000000002']"


def test_every_recalib_service_is_covered() -> None:
    """A service that is added to the file must be added to the test."""
    ours = {name for name, service in SERVICES.items() if "build" in service}
    assert ours == {"secrets", "prepare", "key", "server", "worker", "worker-gpu", "backup"}
    assert {name for name in SERVICES if once(name)} == {"secrets", "prepare", "key"}
    gpu, cpu = SERVICES["worker-gpu"], SERVICES["worker"]
    differing = {"image", "build", "deploy", "profiles", "shm_size"}
    assert {name for name in gpu if gpu[name] != cpu.get(name)} == differing
