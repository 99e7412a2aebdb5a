"""The published digits of paper 003, by its protocol and on its logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import paper_tables
from benchmarks.paper_tables import (
    PUBLISHED,
    Split,
    by_protocol,
    is_reproduced,
    load,
    percent,
    perturbed,
    range_by_rounding,
)
from recalib.ops import NumpyOps

MAPS = [
    "temperature",
    "ensemble_temperature",
    "parameterized_temperature",
    "class_temperature",
]


def draw_split(rows: int) -> Split:
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, rows)
    logits = random.normal(size=(rows, 10)) + 4 * np.eye(10)[labels]
    return Split(logits.astype(np.float32), labels)


@pytest.fixture(scope="module")
def splits(real_data: Path) -> tuple[Split, Split]:
    return load(real_data)


@pytest.mark.parametrize(
    ("eces", "expected"),
    [
        ((1.10, 1.10), True),
        ((1.16, 1.16), True),
        ((1.17, 1.17), False),
        ((1.09, 1.09), False),
        ((0.90, 1.30), True),
        ((1.17, 1.30), False),
        ((0.90, 1.09), False),
    ],
)
def test_reproduced_is_within_the_tolerance_of_the_range(
    eces: tuple[float, float], expected: bool
) -> None:
    assert is_reproduced(1.13, eces) is expected


def test_perturbed_logits_differ_in_the_last_digit() -> None:
    split = draw_split(1000)
    logits = perturbed(split, 0).logits
    steps = np.abs(logits - split.logits) / np.spacing(np.abs(split.logits))
    assert logits.dtype == np.float32
    assert 0.1 < (steps > 0).mean() < 0.9
    assert steps.max() <= 6
    assert not np.array_equal(logits, perturbed(split, 1).logits)
    assert np.array_equal(perturbed(split, 0).labels, split.labels)


def test_range_by_rounding_covers_the_unchanged_logits_and_changed_ones() -> None:
    split = draw_split(10)
    eces = []

    def fit(changed: Split) -> float:
        eces.append(float((changed.logits - split.logits).sum()))
        return eces[-1]

    assert range_by_rounding(fit, split) == (min(eces), max(eces))
    assert eces[0] == 0.0
    assert len(set(eces)) == 17


@pytest.mark.parametrize(("difference", "status"), [(0.0, 0), (1.0, 1)])
def test_status_is_1_if_a_cell_is_not_reproduced(
    difference: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    split = draw_split(60)
    for name in ("val", "test"):
        path = tmp_path / f"resnet110-cifar10-{name}.npz"
        np.savez(path, logits=split.logits, labels=split.labels)
    monkeypatch.setenv("RECALIB_DATA", str(tmp_path))
    # A fit by the protocol takes a second.
    monkeypatch.setattr(paper_tables, "by_protocol", lambda *_: (5.0, 90.0))
    published = {("temperature", "nll"): (5.0 + difference, 90.0)}
    monkeypatch.setattr(paper_tables, "PUBLISHED", published)
    monkeypatch.setattr(paper_tables, "_PERTURBED_FITS", 1)
    with pytest.raises(SystemExit) as exit:
        paper_tables.main()
    assert exit.value.code == status
    assert ("differs" in capsys.readouterr().out) == bool(status)


@pytest.mark.slow
def test_rows_match_the_paper(splits: tuple[Split, Split]) -> None:
    """Uncalibrated: 4.75 (93.56)."""
    test = splits[1]
    ece, accuracy = percent(NumpyOps().softmax(test.logits.astype("float64")), test.labels)
    assert (len(splits[0].labels), len(test.labels)) == (5_000, 10_000)
    assert (round(ece, 2), round(accuracy, 2)) == (4.75, 93.56)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nll", "classwise nd", "focal"])
@pytest.mark.parametrize("map", MAPS)
def test_published_digits_are_reproduced(
    map: str, objective: str, splits: tuple[Split, Split]
) -> None:
    """Within 0.03 points of ECE, the rounding of both and float32's last steps; the accuracy is
    a count of rows, and has to be the same."""
    ece, accuracy = by_protocol(map, objective, *splits)
    published_ece, published_accuracy = PUBLISHED[map, objective]
    assert ece == pytest.approx(published_ece, abs=0.03)
    assert round(accuracy, 2) == published_accuracy
