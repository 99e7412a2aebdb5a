"""`recalib replay`: text, JSON, picture, and invalid input."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.reporting.plots import timeline
from tests.cli.running import Cli
from tests.cli.test_bad_input import check
from tests.fitting.conftest import draw
from tests.replay.logs import START, log, write
from tests.replay.test_class_shares import log as shares_log
from tests.replay.test_classes import log as classes_log
from tests.replay.test_segment_search import with_columns


@pytest.mark.slow
def test_json_has_states_events_and_windows(cli: Cli):
    write(cli.folder / "log.parquet", log())
    output = cli("replay", "log.parquet", "--picture", "t.json", "--json").json
    assert output["state"] == "stale"
    last = output["events"][-1]
    assert last["state"] == "stale"
    assert START + 15 * 86_400 < last["time"] < START + 22 * 86_400
    assert last["evidence"]["rejected_time"] == last["time"]
    assert last["reason"].startswith("accuracy is not within 2.0% of confidence")
    assert {"start", "time", "state", "ece", "ece_floor", "psi"} <= set(output["windows"][0])
    picture = (cli.folder / "t.json").read_text()
    assert "log.parquet" in picture
    (table,) = (
        dataset for dataset in json.loads(picture)["datasets"].values() if "state" in dataset[0]
    )
    assert {row["state"] for row in table} >= {"fresh", "stale"}
    assert table[0]["start"].startswith("2023-11-1")


def test_several_sources_are_one_log(cli: Cli):
    """Parts of the rows in any order, as files and as a folder."""
    columns = log(2_000)
    write(cli.folder / "log.parquet", columns)
    (cli.folder / "rest").mkdir()
    for name, rows in (
        ("a.parquet", slice(1_500, None)),
        ("b.parquet", slice(0, 700)),
        ("rest/c.parquet", slice(700, 1_500)),
    ):
        write(cli.folder / name, {key: values[rows] for key, values in columns.items()})
    options = ("--cohort", 86_400, "--json")
    output = cli("replay", "a.parquet", "rest", "b*.parquet", *options).json
    assert output == cli("replay", "log.parquet", *options).json
    cluster = ("--cluster", "threads:2")
    assert output == cli("replay", "a.parquet", "rest", "b*.parquet", *cluster, *options).json
    assert "a.parquet and 2 more: 2,000" in cli("replay", "a.parquet", "rest", "b.parquet").out
    check(cli("replay", "a.parquet", "a.parquet"), "data", "a.parquet twice")
    into = cli("replay", "a.parquet", "b.parquet", "--into", "m", "--server", "http://127.0.0.1:1")
    check(into, "log", "a.parquet, b.parquet")


def test_options_reach_the_monitor(cli: Cli):
    """A tolerance that the drift is within, a horizon, an α, and a smaller window."""
    write(cli.folder / "log.parquet", log(4_000))
    options = ("--tolerance", 0.2, "--maturity", 7_200, "--alpha", 0.01, "--window", 500)
    output = cli("replay", "log.parquet", *options, "--objective", 0.3, "--json").json
    assert output["state"] == "fresh"
    assert output["maturity"] == {"seconds": 7_200, "from": "given"}
    assert output["events"][0]["evidence"]["threshold"] == pytest.approx(np.log(100))
    assert max(window["n"] for window in output["windows"]) < 700
    assert output["late"] > 0


def test_replay_uses_probabilities_and_the_calibration_set(cli: Cli):
    """Text output uses the class names of the card."""
    columns = shares_log(np.array([0.1, 0.3, 0.6]))
    write(cli.folder / "log.parquet", columns)
    calibrator = fit(*draw(3_000, 3, 1.0), map="temperature", class_labels=("cat", "dog", "eel"))
    calibrator.save(cli.folder / "t.calib")
    result = cli("replay", "log.parquet", "--calibrator", "t.calib", "--cohort", 1_000)
    text = "".join(result.out.split())
    assert "comparedwiththecalibrationset's3,000predictions" in text
    assert "ifonlytheclassshareshavechanged:eel2" in text
    options = ("--calibrator", "t.calib", "--cohort", 1_000, "--json")
    output = cli("replay", "log.parquet", *options).json
    assert (output["reference_from"], output["reference_rows"]) == ("calibrator", 3_000)
    assert output["class_shares"]["brier_rescaled"] < output["class_shares"]["brier"]
    check(cli("replay", "log.parquet", "--calibrator", "no.calib"), "calibrator", "no.calib")


@pytest.mark.slow
def test_adaptation_is_in_the_text_the_result_and_the_report(cli: Cli):
    write(cli.folder / "log.parquet", shares_log(np.array([0.1, 0.3, 0.6])))
    options = ("--adapt", "label_shift", "--cohort", 1_000)
    result = cli("replay", "log.parquet", *options, "--report", "r.html")
    assert "adaptationtolabelshift:state" in "".join(result.out.split())
    page = (cli.folder / "r.html").read_text()
    assert "Adaptation to label shift: state" in page
    assert 'id="adaptation"' in page
    output = cli("replay", "log.parquet", *options, "--json").json["adaptation"]
    assert output["number"] == output["states"][-1]["number"] > 0
    assert output["nll"] < output["nll_unadapted"]
    assert cli("replay", "log.parquet", "--json").json["adaptation"] is None
    write(cli.folder / "bare.parquet", log(2_000))
    check(cli("replay", "bare.parquet", "--adapt", "label_shift"), "probabilities", "confidence")


@pytest.mark.slow
def test_text_output_and_picture(cli: Cli):
    write(cli.folder / "log.parquet", log())
    result = cli("replay", "log.parquet", "--picture", "t.svg")
    assert result.status == 0, result
    for text in ("12,000 predictions", "fresh", "stale", "2023-12-", "came too late", "now stale"):
        assert text.replace(" ", "") in "".join(result.out.split()), text
    assert "log.parquet" in (cli.folder / "t.svg").read_text()


def test_report_shows_states_reliability_and_segments(cli: Cli):
    """Reliability before the onset is that of a calibrated log, after it that of the drift."""
    columns = log() | {"region": np.where(np.arange(12_000) % 3, "eu", "<us>")}
    write(cli.folder / "log.parquet", columns)
    options = ("--find-segments", "region", "--report", "r.html", "--json")
    output = cli("replay", "log.parquet", *options).json
    bins = output["reliability"]
    assert {row["period"] for row in bins} == {"before", "after"}
    timely = output["labelled"] - output["late"]
    assert timely - output["immature"] <= sum(row["labels"] for row in bins) <= timely
    for row in bins:
        assert row["low"] <= row["accuracy"] <= row["high"]
        if row["period"] == "after" and 0.8 < row["confidence"] < 0.95:
            assert row["high"] < row["confidence"]
    covered = [r["low"] <= r["confidence"] <= r["high"] for r in bins if r["period"] == "before"]
    assert np.mean(covered) >= 0.8
    page = (cli.folder / "r.html").read_text()
    assert "Now stale." in page
    assert page.count("<svg") == 2
    assert "region = &lt;us&gt;" in page
    check(cli("replay", "log.parquet", "--report", "r.pdf"), "report", "r.pdf")


@pytest.mark.slow
def test_warnings_name_violated_assumptions(cli: Cli):
    columns = log(4_000, drift=None, labelled=1.0)
    right = np.array(columns["correct"].to_pylist())
    columns["label_time"] = columns["time"] + np.where(right, 86_400.0, 60.0)
    write(cli.folder / "log.parquet", columns)
    result = cli("replay", "log.parquet", "--maturity", 3_600)
    assert "warning: labels come more often" in result.err
    result = cli("replay", "log.parquet", "--maturity", 1e8)
    assert "warning: nothing has matured" in result.err
    assert "now unverified" in result.out


@pytest.mark.parametrize(
    ("arguments", "field", "found"),
    [
        (("--alpha", 2), "options.alpha", "2"),
        (("--tolerance", -1), "options.tolerance", "-1"),
        (("--objective", 0), "options.objective", "0"),
        (("--maturity", -1), "options.maturity", "-1"),
        (("--cohort", 0), "options.cohort", "0"),
        (("--selection-ratio", 0.5), "options.selection_ratio", "0.5"),
        (("--window", 1), "options.least_labels", "1"),
        (("--picture", "a.gif"), "picture", ".gif"),
        (("--picture", "log.parquet.svg/a.svg"), "picture", "no folder"),
    ],
)
def test_invalid_options_are_one_line(cli: Cli, arguments, field: str, found: str):
    write(cli.folder / "log.parquet", log(200))
    check(cli("replay", "log.parquet", *arguments), field, found)


@pytest.mark.slow
def test_selection_of_labels_is_named_and_its_band_is_drawn(cli: Cli):
    """All errors have a label, and 30% of the other predictions."""
    columns = log(drift=None, labelled=1.0)
    right = np.array(columns["correct"].to_pylist())
    chosen = ~right | (np.random.default_rng(0).random(len(right)) < 0.3)
    for name in ("correct", "label_time"):
        columns[name] = pc.if_else(pa.array(chosen), pa.array(columns[name]), None)
    write(cli.folder / "log.parquet", columns)
    result = cli("replay", "log.parquet")
    assert "now stale" in result.out
    assert "may come from the selection of labels" in " ".join((result.out + result.err).split())
    options = ("--selection-ratio", 4, "--picture", "t.json", "--json")
    output = cli("replay", "log.parquet", *options).json
    last = output["windows"][-1]
    assert last["selective"]
    assert last["may_be_selection"]
    assert output["events"][-1]["may_be_selection"]
    assert last["selection_low"] == 0
    assert last["selection_high"] > last["ece_high"]
    picture = json.loads((cli.folder / "t.json").read_text())
    assert "selection_low" in json.dumps(picture["vconcat"][0])
    assert "by a factor up to 4" in picture["title"]["subtitle"][2]
    assert "selection of labels" in picture["title"]["subtitle"][3]
    (table,) = (rows for rows in picture["datasets"].values() if "state" in rows[0])
    assert table[-1]["selection_high"] == pytest.approx(last["selection_high"], abs=1e-6)


def test_invalid_logs_are_one_line(cli: Cli):
    cli.write("empty.parquet", b"")
    check(cli("replay", "empty.parquet"), "data", "ends too early")
    check(cli("replay", "val.npz"), "log", ".npz")
    check(cli("replay", "missing.parquet"), "log", "missing.parquet")
    columns = log(200)
    columns["confidence"][7] = 1.5
    write(cli.folder / "log.parquet", columns)
    check(cli("replay", "log.parquet"), "confidence[7]", "1.5")


def test_timeline_with_numeric_times_and_without_labels():
    """Numeric times are shown as numbers; windows without labels are omitted."""
    window = {
        "start": 0.0,
        "time": 1.0,
        "state": "unverified",
        "ece": None,
        "ece_low": None,
        "ece_high": None,
        "ece_floor": None,
        "log_evidence": 0.0,
        "threshold": 3.0,
    }
    chart = timeline([window], objective=0.05, heading="a log").to_dict()
    (table,) = (dataset for dataset in chart["datasets"].values() if "state" in dataset[0])
    assert table[0]["start"] == 0.0
    assert "quantitative" in json.dumps(chart["vconcat"][2]["encoding"]["x"])
    with pytest.raises(InputError):
        timeline([], objective=0.05, heading="a log")


@pytest.mark.slow
def test_worst_segment_is_named(cli: Cli):
    columns = with_columns(wrong=0.35)
    write(cli.folder / "log.parquet", columns)
    result = cli("replay", "log.parquet", "--find-segments", "region, load", "--cohort", 432_000)
    text = "".join(result.out.split())
    assert "worstsegment:region=r7,accuracy" in text
    assert "of28segmentsdifferbymorethan2.0%" in text
    output = cli("replay", "log.parquet", "--find-segments", "region", "--json").json
    worst = output["segment_search"]["worst"]
    assert (worst["column"], worst["value"]) == ("region", "r7")
    assert {"low", "high", "labels", "gap"} <= set(worst)
    check(cli("replay", "log.parquet", "--find-segments", "shape"), "find_segments", "no column")
    write(cli.folder / "good.parquet", with_columns())
    good = cli("replay", "good.parquet", "--find-segments", "region", "--cohort", 432_000)
    assert "nosegmentisshowntodifferbymorethan2.0%" in "".join(good.out.split())


@pytest.mark.slow
def test_classes_are_monitored(cli: Cli):
    write(cli.folder / "log.parquet", classes_log(swap=True))
    result = cli("replay", "log.parquet", "--classes", "all", "--cohort", 43_200)
    text = "".join(result.out.split())
    assert "4classesonupto" in text
    assert "nowstale" in text
    output = cli("replay", "log.parquet", "--classes", "1,2", "--cohort", 43_200, "--json").json
    assert output["classes"]["watched"] == 2
    assert output["events"][-1]["classes"]["rejected"]
    check(cli("replay", "log.parquet", "--classes", "cat"), "classes", "'cat'")
