"""`recalib monitoring`, `promote` and `rollback`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recalib.client import Client
from recalib.contract.monitoring import MonitoringReport
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.client.flaky import Flaky, says
from tests.end_to_end.programs import Server

__all__ = ["cli"]

_AT = "2026-03-04T05:06:07.000+00:00"
_EVIDENCE: dict[str, Any] = {
    "log_evidence": 4.5, "threshold": 3.0, "psi": 0.25, "psi_threshold": 0.125,
    "n": 4_000, "traffic": 16_000, "coverage": 0.25, "accuracy": 0.8, "confidence": 0.875,
    "ece": 0.075, "ece_low": 0.07, "ece_high": 0.08, "ece_floor": 0.01,
    "ce": 0.085, "ce_low": 0.08, "ce_high": 0.09, "silent": 0.125,
    "selection_ratio": 2.0, "selection_low": 0.02, "selection_high": 0.15,
}  # fmt: skip
_MEASURED = {
    "ece": 0.081, "ece_low": 0.061, "ece_high": 0.101, "ece_floor": 0.021, "ce": 0.09,
    "labelled": 400, "traffic": 1_600, "delay": 75.0,
}  # fmt: skip
ALERT: dict[str, Any] = {
    "onset": _AT, "labels": 652, "accuracy": 0.7, "confidence": 0.771, "low": 0.04, "high": 0.1,
    "direction": "too_high", "places": [],
    "versions": [
        {"version": 2, "labels": 600, "difference": 0.02, "low": 0.01, "high": 0.03},
        {"version": 1, "labels": 600, "difference": -0.02, "low": -0.03, "high": -0.01},
    ],
    "summary": "too sure by 7.1 points [4.0, 10.0]", "command": "recalib rollback m",
    "runbook": "https://runbooks.example.com/recalib#calibratorstale", "dashboard": "",
}  # fmt: skip
#: A report as the service writes it; validation fails on other fields.
REPORT = MonitoringReport.model_validate(
    {
        "model": "m", "version": 3, "state": "stale", "since": _AT,
        "reason": "accuracy is not within 2.0% of confidence", "evidence": _EVIDENCE, "onset": _AT,
        "alert": ALERT,
        "segments": [{"segment": "[red]eu", "state": "stale", "reason": "so", "evidence": {},
                      "may_be_selection": False}],
        "windows": [
            {"start": _AT, "end": _AT, "measured": _MEASURED, "replayed": False},
            {"start": _AT, "end": _AT, "measured": {**dict.fromkeys(_MEASURED), "labelled": 0},
             "replayed": False},
        ],
        "late_labels": 7, "assessed_at": _AT, "replayed_through": None,
        "events": [
            {"at": _AT, "version": 3, "kind": "stale", "actor": "monitor", "reason": "x",
             "evidence": {}, "replayed": False},
            {"at": _AT, "version": 4, "kind": "refitted", "actor": f"job:{'0' * 32}",
             "reason": "requested by a user", "evidence": {}, "replayed": False},
        ],
        "candidate": {"version": 4, "verdict": None, "began_at": _AT,
                      "evidence": {"labels": 1_500, "mean_difference": 0.0123,
                                   "log_evidence": 1.5, "threshold": 3.0}},
        "classes": {"watched": 4, "log_evidence": 2.5, "threshold": 3.7,
                    "worst": [{"class_index": 2, "log_evidence": 3.25, "probability": 0.125,
                               "frequency": 0.0625, "range_labels": 900}]},
        "adaptation": None, "captured_rows": 1_234, "may_be_selection": True,
        "warnings": ["the calibration error of version 3 exceeds [the tolerance]"],
    }
).model_dump(mode="json")  # fmt: skip


def test_text_output_has_the_full_report(cli: Cli, flaky: Flaky) -> None:
    flaky.will(says(200, REPORT))
    result = cli("monitoring", "m", "--server", flaky.url)
    assert result.status == 0
    assert "the calibration error of version 3 exceeds [the tolerance]" in result.err
    output = "".join(result.out.split())
    for text in (
        "m, version 3: stale since 2026-03-04 05:06:07 UTC",
        "accuracy is not within 2.0% of confidence",
        "too sure by 7.1 points [4.0, 10.0]",
        "version 2 is better on 600 recent labels: Brier score lower by 0.0200 [0.0100, 0.0300]",
        "version 1 is worse on 600 recent labels",
        "next: recalib rollback m",
        "https://runbooks.example.com/recalib#calibratorstale",
        "log E 4.50 of 3.00; PSI 0.25, threshold 0.12; 4,000 labels of 16,000 predictions",
        "7 labels came too late; 1,234 logits kept",
        "window: ECE 7.5% [7.0%, 8.0%], floor 1.0%;",
        "ECE [2.0%, 15.0%] for selection of labels up to a ratio of 2;",
        "unbiased CE 8.5% [8.0%, 9.0%]",
        "accuracy 80.0%, confidence 87.5%; coverage 25.0%, silent traffic 12.5%",
        "evidence has grown since the prediction of 2026-03-04 05:06:07 UTC",
        "[red]eu",
        "4 classes, log E 2.50 of 3.70; those with the most",
        "2 3.25 12.5% 6.2% 900",
        "8.1% [6.1%, 10.1%]",
        "75 s",
        "candidate 4: is being compared; Brier score lower by 0.0123 on 1,500 labels",
        "monitor",
        "requested by a user",  # although the name of a job alone would fill the line
    ):
        assert "".join(text.split()) in output, text


def test_json_output_has_the_full_report(cli: Cli, flaky: Flaky) -> None:
    flaky.will(says(200, REPORT))
    output = cli("monitoring", "m", "--server", flaky.url, "--json").json
    assert (output["state"], output["candidate"]["version"]) == ("stale", 4)
    assert output["windows"][0]["measured"] == _MEASURED
    assert set(output) == set(REPORT)


def test_unmonitored_and_unknown_models(cli: Cli, server: Server) -> None:
    """An unmonitored model of a real server; an unknown model is one line."""
    with Client(server.url) as client:
        client.create_model("unwatched", 4, exist_ok=True)
    result = cli("monitoring", "unwatched", "--server", server.url)
    assert result.out.splitlines() == [
        "unwatched, no champion: unverified",
        "the model has no champion to monitor",
    ]
    result = cli("monitoring", "nobody", "--server", server.url)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert "nobody" in result.err


def test_promote_and_rollback(cli: Cli, flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RECALIB_SERVER` is the server; the warnings of a promotion are printed."""
    alias = {"alias": "champion", "model": "m", "version": 4, "updated_at": "2026-03-04T05:06:07Z"}
    monkeypatch.setenv("RECALIB_SERVER", flaky.url)
    flaky.will(says(200, {**alias, "warnings": ["it has no labels"]}), says(200, alias))
    result = cli("promote", "m", 4, "--reason", "better at night")
    assert result.out == "champion of m is version 4\n"
    assert "it has no labels" in result.err
    sent = flaky.received[-1]
    assert (sent.method, sent.path) == ("PUT", "/v1/models/m/aliases/champion")
    assert json.loads(sent.body) == {"version": 4, "reason": "better at night"}
    assert cli("promote", "m", 4, "--alias", "canary", "--json").json["version"] == 4
    assert flaky.received[-1].path.endswith("/canary")
    change = {"at": "2026-03-04T05:06:07Z", "to_version": 4, "from_version": 3}
    change |= {"actor": "anna", "reason": ""}
    moved = says(200, {"items": [change]}), says(200, {**alias, "version": 2})
    flaky.will(says(200, REPORT), *moved)
    lines = cli("rollback", "m").out.splitlines()
    assert [line[:19] for line in lines[:2]] == ["version 2 is better", "version 1 is worse "]
    assert lines[-1] == "champion of m is version 2"
    assert json.loads(flaky.received[-1].body)["version"] == 3
    flaky.will(says(200, REPORT), *moved)
    assert cli("rollback", "m", "--json").json["versions"] == ALERT["versions"]
    flaky.will(says(200, REPORT), moved[0], says(200, {**alias, "version": 1}))
    assert "version 1 is worse on recent labels" in cli("rollback", "m").err
    flaky.will(says(200, {**REPORT, "alert": None}), *moved)
    assert "earlier versions are not compared" in cli("rollback", "m").err
    flaky.will(says(200, REPORT), says(200, {"items": []}))
    assert "an earlier version" in cli("rollback", "m").err
