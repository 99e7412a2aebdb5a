"""docs/operations.md agrees with the code: alerts, commands and monitoring settings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from recalib.registry import MonitoringSettings

_ROOT = Path(__file__).resolve().parents[1]
_PAGE = (_ROOT / "docs" / "operations.md").read_text()


def _alerts() -> dict[str, dict[str, Any]]:
    rules = yaml.safe_load((_ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    """The order is the same, each section has instructions, and the alert links to it."""
    section = _PAGE.split("\n## Alerts\n")[1].split("\n## ")[0]
    sections = re.findall(r"^### (\w+)\n\n(.*?)(?=\n### |\Z)", section, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == list(_alerts())
    for name, text in sections:
        assert len(text.split()) > 25, name
    for name, alert in _alerts().items():
        runbook = alert["annotations"]["runbook"]
        assert "recalib_links_info" in runbook  # an absolute URL
        assert runbook.endswith(f"#{name.lower()}")


@pytest.mark.parametrize("word", ["capture", "maturity_seconds", "capture_seconds", "tolerance"])
def test_monitoring_settings_exist(word: str) -> None:
    assert f"`{word}`" in _PAGE
    assert word in {field.name for field in dataclasses.fields(MonitoringSettings)}
