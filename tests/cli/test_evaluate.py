"""`recalib evaluate`: metrics, intervals and pictures."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

import recalib
from recalib.metrics.evaluate import evaluate
from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npy, write_npz


def test_text_has_percentages_and_json_has_fractions(cli: Cli) -> None:
    share = cli("evaluate", "val.npz", "--json").json["accuracy"]
    assert 0 < share < 1
    assert f"{share * 100:.2f} [" in cli("evaluate", "val.npz").out


def test_intervals(cli: Cli) -> None:
    measured = cli("evaluate", "val.npz", "--intervals", "--json").json
    accuracy = measured["accuracy"]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert accuracy["floor"] is None
    error = measured["ece"]
    assert error.keys() == {"value", "low", "high", "floor"}
    assert 0 < error["floor"] < error["high"]
    assert "noise floor" in cli("evaluate", "val.npz").out


def test_classwise_error_is_without_bias_and_beside_the_plug_in_error(cli: Cli) -> None:
    measured = cli("evaluate", "val.npz", "--intervals", "--json").json
    error, plug_in = measured["classwise_ce"], measured["marginal_ece_l2"]
    assert error["low"] <= error["value"] <= error["high"]
    assert error["value"] < plug_in["value"]
    lines = cli("evaluate", "val.npz", "--all").out.splitlines()
    names = [line.split()[1] for line in lines if "%" in line]
    assert names.index("classwise_ece") == names.index("classwise_ce") + 1


def rows_of(table: str) -> list[str]:
    """Return the names in the first column of a table."""
    return [line.split()[1] for line in table.splitlines() if line.startswith("│")]


def test_table_is_short_unless_metrics_are_named(cli: Cli) -> None:
    """JSON has all metrics by default; several files have the same choice."""
    everything = cli("evaluate", "val.npz", "--json").json
    short = ["accuracy", "nll", "brier", "ece", "classwise_ece"]
    assert rows_of(cli("evaluate", "val.npz").out) == short
    assert rows_of(cli("evaluate", "val.npz", "--all").out) == [*everything]
    cli.write("more.npz", write_npz(LOGITS, LABELS))
    assert rows_of(cli("evaluate", "val.npz", "more.npz").out) == short
    for files in (["val.npz"], ["val.npz", "more.npz"]):
        named = cli("evaluate", *files, "--metrics", "ks_error,nll", "--json").json
        assert named == pytest.approx({name: everything[name] for name in ("nll", "ks_error")})
    result = cli("evaluate", "val.npz", "--metrics", "ecee")
    assert "metrics: found 'ecee'; accepted: did you mean ece?" in result.err
    result = cli("evaluate", "val.npz", "more.npz", "--metrics", "ece_kde")
    assert "metrics: found ece_kde; accepted: of several files accuracy, " in result.err
    both = cli("evaluate", "val.npz", "--metrics", "ece", "--all")
    assert "metrics: found --all too" in both.err


def test_bins(cli: Cli) -> None:
    assert cli("evaluate", "val.npz", "--bins", 1, "--json").json["ece"] == pytest.approx(
        evaluate(LABELS, logits=LOGITS, bins=1)["ece"].value
    )


def test_weights(cli: Cli) -> None:
    """Also of the card's metrics of a weighted fit."""
    weights = np.random.default_rng(0).uniform(0.1, 3.0, len(LABELS))
    cli.write("weights.npy", write_npy(weights))
    result = cli("evaluate", "val.npz", "--weights", "weights.npy", "--json").json
    expected = evaluate(LABELS, logits=LOGITS, sample_weight=weights)
    assert result == pytest.approx({name: item.value for name, item in expected.items()})
    counts = np.rint(weights)
    cli.write("counts.npy", write_npy(counts))
    options = ("--weights", "counts.npy", "--weight-kind", "counts", "--json")
    expected_of_counts = evaluate(LABELS, logits=LOGITS, sample_weight=counts, weight_kind="counts")
    assert cli("evaluate", "val.npz", *options).json == pytest.approx(
        {name: item.value for name, item in expected_of_counts.items()}
    )
    fit = cli("fit", "val.npz", "--weights", "weights.npy", "-o", "t.calib", "--json").json
    assert fit["card"]["metrics"]["before"]["ece"]["value"] == pytest.approx(expected["ece"].value)
    cli.write("few.npy", write_npy(weights[:3]))
    failure = cli("evaluate", "val.npz", "--weights", "few.npy")
    assert failure.err.startswith("error: weights: found shape (3,)")
    failure = cli("evaluate", "val.npz", "--weights", "weights.npy", "--diagram", "d.svg")
    assert failure.err == "error: weights: found --diagram too; accepted: one of the two\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "start"),
    [("png", b"\x89PNG"), ("svg", b"<svg")],
)
def test_diagram(cli: Cli, suffix: str, start: bytes) -> None:
    result = cli("evaluate", "val.npz", "--diagram", f"d.{suffix}")
    assert result.out.endswith(f"saved d.{suffix}\n")
    assert cli.files()[f"d.{suffix}"].startswith(start)


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        ("reliability", "gap to mean confidence"),
        pytest.param("smooth", "accuracy, smoothed", marks=pytest.mark.slow),
        pytest.param("classwise", "class-wise ECE", marks=pytest.mark.slow),
        ("confidence", "wrong"),
        ("risk", "AURC"),
    ],
)
def test_each_picture_is_drawn(cli: Cli, picture: str, text: str) -> None:
    result = cli("evaluate", "val.npz", "--diagram", "d.json", "--picture", picture)
    assert result.status == 0
    assert text in cli.files()["d.json"].decode()


def test_swapped_columns_are_named(cli: Cli) -> None:
    """Beside the answer; `fit` too."""
    swapped = LOGITS[:, ::-1]
    cli.write("swapped.npz", write_npz(swapped, LABELS))
    result = cli("evaluate", cli.folder / "swapped.npz", "--json")
    assert "accuracy" in json.loads(result.out)
    assert "with columns in another order (class 0 in column 3, " in " ".join(result.err.split())
    result = cli("fit", cli.folder / "swapped.npz", "-o", cli.folder / "a.calib")
    assert "with columns in another order" in " ".join(result.err.split())


def test_calibrator_with_sets_shows_their_coverage(cli: Cli) -> None:
    """In a sentence, and in JSON as `sets`; not with weights, which the intervals do not have."""
    cli("fit", "val.npz", "--sets", "lac", "--coverage", "0.8", "-o", "s.calib")
    expected = recalib.load(cli.folder / "s.calib").evaluate_sets(LOGITS, LABELS)
    arguments = ("evaluate", "val.npz", "--calibrator", "s.calib")
    assert cli(*arguments, "--json").json["sets"] == asdict(expected)
    shown = " ".join(cli(*arguments).out.split())
    assert f"prediction sets hold the label of {expected.coverage:.2%} [" in shown
    assert f"the least of class {expected.worst_class}: {expected.worst_coverage:.2%} [" in shown
    np.save(cli.folder / "w.npy", np.ones(len(LABELS)))
    assert "sets" not in cli(*arguments, "--weights", "w.npy", "--json").json
