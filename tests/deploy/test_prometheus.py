"""Prometheus rules are valid, pass their tests, and use existing metrics."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recalib.registry import Registry
from recalib.registry.audit import SCHEDULED_BACKUP
from recalib.settings import Settings
from service.health.registry_metrics import families, links_family, read
from service.metrics import exposition
from tests.requirements import program_path
from tests.training.watched import Stream, a_champion
from training.monitoring_job import watch

_RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


@pytest.fixture
def promtool() -> str:
    """The path of the program, or a skip with the reason."""
    return program_path("promtool", "prometheus", "prometheus")


@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "recording.yml", "alerts.yml"), ("test", "rules", "tests.yml")],
    ids=lambda row: row[0],
)
@pytest.mark.slow
def test_prometheus_rules_pass_promtool(promtool: str, arguments: tuple[str, ...]) -> None:
    process = subprocess.run(
        [promtool, *arguments], cwd=_RULES, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_every_alert_is_tested() -> None:
    """promtool's test file has every alert."""
    alerts = set(re.findall(r"alert: (\w+)", (_RULES / "alerts.yml").read_text()))
    tested = set(re.findall(r"alertname: (\w+)", (_RULES / "tests.yml").read_text()))
    assert len(alerts) >= 10
    assert alerts == tested


def test_time_of_the_last_scheduled_backup_is_exported(registry: Registry) -> None:
    """And nothing before the first one."""
    name = "recalib_backup_timestamp_seconds"
    assert f"\n{name} " not in exposition(families(read(registry))).decode()
    with registry.transaction() as tx:
        for action in (SCHEDULED_BACKUP, "backup"):
            tx.audit.record("cli:anna", action, None, "a.zip")
        now = tx.clock()
    (line,) = re.findall(rf"^{name} (.+)$", exposition(families(read(registry))).decode(), re.M)
    assert abs(float(line) - now) < 60


def test_rules_use_existing_metrics(registry: Registry) -> None:
    """A renamed metric would silence its alert."""
    model = a_champion(registry)
    Stream(registry, model).send(1_000, ago=1_000, shift=-1.0)
    watch(registry, model)
    text = exposition([links_family(Settings()), *families(read(registry))]).decode()
    exported = {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }
    exported |= {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    histograms = {line.split()[2] for line in text.splitlines() if line.endswith(" histogram")}
    exported |= {f"{name}_bucket" for name in histograms}
    rules = "".join((_RULES / name).read_text() for name in ("recording.yml", "alerts.yml"))
    queried = set(re.findall(r"\brecalib_[a-z_]+", re.sub(r"name: \w+", "", rules)))
    assert len(queried) > 10
    assert queried <= exported
