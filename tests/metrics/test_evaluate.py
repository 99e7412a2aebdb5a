"""`evaluate`: defaults, invalid input, and published results."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib.metrics
from recalib.errors import CorruptError, InputError
from recalib.metrics import METRICS, Metric, Predictions, StreamingMetric
from recalib.metrics.evaluate import StreamingEvaluation, evaluate
from recalib.stats.class_bins import ClassBins
from tests.metrics.rows import defined

LOGITS = [[6.0, 0.0], [0.0, 1.0]]
PROBABILITIES = [[0.9, 0.1], [0.2, 0.8]]


def test_public_names_exist() -> None:
    for name in recalib.metrics.__all__:
        assert hasattr(recalib.metrics, name)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_have_matching_names_and_descriptions(name: str) -> None:
    metric = METRICS[name](15)
    assert isinstance(metric, Metric)
    assert metric.name == name
    assert metric.summary
    assert "range [" in type(metric).__doc__
    if isinstance(metric, StreamingMetric):
        assert metric.state_kind


def test_default_metrics_are_in_registry_order() -> None:
    """Expensive metrics are measured only when named."""
    usual = [name for name in defined(2) if not METRICS[name].on_request]
    assert list(evaluate([0, 1], logits=LOGITS)) == usual
    assert list(evaluate([0, 1], logits=LOGITS, metrics=defined(2))) == defined(2)
    assert list(evaluate([0, 1], logits=LOGITS, metrics=["ece", "accuracy"])) == ["accuracy", "ece"]


def test_evaluation_includes_all_streaming_metrics() -> None:
    evaluation = StreamingEvaluation(2)
    evaluation.add([0, 1], logits=LOGITS)
    streaming = [name for name in defined(2) if issubclass(METRICS[name], StreamingMetric)]
    assert list(evaluation.finish()) == streaming


def test_intervals_are_optional() -> None:
    assert all(estimate.low is None for estimate in evaluate([0, 1], logits=LOGITS).values())
    result = evaluate([0, 1], logits=LOGITS, level=0.95)
    assert result["classwise_loss_std"].low is None
    assert result["ece"].low is not None


#: Metrics that are not calibration errors; `docs/metrics.md` says which others have a floor.
WITHOUT_FLOOR = {
    "accuracy",
    "top5_accuracy",
    "roc_auc",
    "nll",
    "brier",
    "aurc",
    "e_aurc",
    "brier_resolution",
    "brier_uncertainty",
    "s99",
    "s99_accuracy",
    "mean_confidence",
    "mean_entropy",
    "classwise_loss_std",
}


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_every_calibration_error_has_an_interval_and_a_floor(rows: int) -> None:
    """Also for one row; without a level there are no intervals."""
    rng = np.random.default_rng(rows)
    p, y = rng.dirichlet(np.ones(3), rows), rng.integers(0, 3, rows)
    result = evaluate(y, probabilities=p, metrics=defined(3), level=0.95)
    with_floor = {name for name, estimate in result.items() if estimate.floor is not None}
    assert not with_floor & WITHOUT_FLOOR
    for name in with_floor:
        estimate, largest = result[name], 2 if name == "ece_kde_canonical" else 1
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= largest + 1e-12, name
        assert 0 <= estimate.floor <= largest, name
        assert 0 <= estimate.floor_high <= largest, name
    plain = evaluate(y, probabilities=p, metrics=defined(3))
    assert all(estimate.low is None and estimate.floor is None for estimate in plain.values())
    for name, estimate in plain.items():  # memory alignment decides a sum's last bit
        assert estimate.value == pytest.approx(result[name].value, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize(
    "options", [{}, {"logits": LOGITS, "probabilities": PROBABILITIES}], ids=["neither", "both"]
)
def test_exactly_one_of_logits_and_probabilities_is_required(options: dict) -> None:
    value = "both" if options else "neither"
    with pytest.raises(InputError, match=value):
        evaluate([0, 1], **options)
    with pytest.raises(InputError, match=value):
        StreamingEvaluation(2).add([0, 1], **options)


@pytest.mark.parametrize("names", [["ece", "ecce"], "ecce", [""]])
def test_unknown_metric_error_lists_known_metrics(names) -> None:
    with pytest.raises(InputError, match="classwise_ece") as excinfo:
        evaluate([0, 1], logits=LOGITS, metrics=names)
    assert excinfo.value.field == "metrics"


@pytest.mark.parametrize(
    ("name", "classes"), [("binary_ece", 3), ("roc_auc", 3), ("top5_accuracy", 5)]
)
def test_metric_that_is_not_defined_for_the_classes_is_refused(name: str, classes: int) -> None:
    """By name; by default it is absent."""
    logits = np.eye(classes)
    assert name not in evaluate(range(classes), logits=logits)
    message = f"found {name}, which is not defined for {classes} classes; accepted: accuracy, nll"
    with pytest.raises(InputError, match=message):
        evaluate(range(classes), logits=logits, metrics=["nll", name])


@pytest.mark.parametrize("bins", [0, -1, 10_001])
def test_bins_outside_their_limits_are_rejected(bins: int) -> None:
    with pytest.raises(InputError, match="1 to 10000"):
        evaluate([0, 1], logits=LOGITS, bins=bins)
    with pytest.raises(InputError, match="1 to 10000"):
        StreamingEvaluation(2, bins)


@pytest.mark.parametrize("bins", [1, 10_000])
def test_bins_at_their_limits_are_accepted(bins: int) -> None:
    result = evaluate([0, 1], probabilities=PROBABILITIES, bins=bins)
    assert result["ece"].value == pytest.approx(0.15)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, float("nan")])
def test_invalid_levels_are_rejected(level: float) -> None:
    evaluation = StreamingEvaluation(2)
    evaluation.add([0, 1], logits=LOGITS)
    with pytest.raises(InputError, match="level"):
        evaluate([0, 1], logits=LOGITS, level=level)
    with pytest.raises(InputError, match="level"):
        evaluation.finish(level)


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ([0, 2], {"logits": LOGITS}),
        ([0], {"logits": LOGITS}),
        ([0, 1], {"logits": [[np.nan, 0.0], [0.0, 1.0]]}),
        ([0, 1], {"logits": [[-np.inf, -np.inf], [0.0, 1.0]]}),
        ([0, 1], {"probabilities": LOGITS}),
        ([], {"logits": np.empty((0, 2))}),
    ],
)
def test_invalid_arrays_are_rejected(labels: list, options: dict) -> None:
    with pytest.raises(InputError):
        evaluate(labels, **options)


def test_real_logits_have_published_error(real_data: Path) -> None:
    """ResNet-110 on CIFAR-10, uncalibrated: accuracy 93.56%, ECE 4.75%."""
    with np.load(real_data / "resnet110-cifar10-test.npz") as data:
        logits, labels = data["logits"], data["labels"]
    result = evaluate(labels, logits=logits)
    assert result["accuracy"].value == pytest.approx(0.9356, abs=1e-9)
    assert result["ece"].value == pytest.approx(0.0475, abs=5e-5)
    halves = [StreamingEvaluation(10), StreamingEvaluation(10)]
    for half, rows in zip(halves, (slice(0, 3001), slice(3001, None)), strict=True):
        half.add(labels[rows], logits=logits[rows])
    merged = halves[0].merge(halves[1])
    bounds = merged.error_bounds()
    for name, estimate in merged.finish().items():
        exact = pytest.approx(result[name].value, rel=1e-12, abs=bounds[name] + 1e-12)
        assert estimate.value == exact, name
    assert max(bounds.values()) < 1e-2


def test_metrics_of_one_kind_share_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """`classwise_ece` and `marginal_ece_l2` share one pass over (N, K); it is not cached."""
    passes = []
    add = ClassBins.add

    def counted(state: ClassBins, probabilities: Any, labels: Any, weights: Any) -> None:
        passes.append(len(labels))
        add(state, probabilities, labels, weights)

    monkeypatch.setattr(ClassBins, "add", counted)
    first = evaluate([0, 1], probabilities=[[0.7, 0.3], [0.6, 0.4]], level=0.95)
    assert passes == [2]
    again = evaluate([0, 1], probabilities=[[0.7, 0.3], [0.6, 0.4]], level=0.95)
    assert passes == [2, 2]
    assert again == first


def test_streaming_evaluation_is_a_value() -> None:
    """Pickles and copies are equal and independent; `merge` changes neither operand."""
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 40), rng.integers(0, 3, 40)
    first, second = StreamingEvaluation(3), StreamingEvaluation(3)
    first.add(y[:25], probabilities=p[:25])
    second.add(y[25:], probabilities=p[25:])
    before = [pickle.dumps(part) for part in (first, second)]
    merged = pickle.loads(before[0]).merge(copy.deepcopy(second))
    assert merged == first.merge(second)
    assert merged != first
    assert merged.rows == 40
    assert [pickle.dumps(part) for part in (first, second)] == before
    merged.add(y, probabilities=p)  # sums of a pickle are writable
    assert first.merge().rows == 25


def test_bytes_of_something_else_are_no_evaluation() -> None:
    data = StreamingEvaluation(3).to_bytes()
    for bad in (b"", data[:-1], data.replace(b"bins.count", b"bins.other")):
        with pytest.raises(CorruptError):
            StreamingEvaluation.from_bytes(bad)


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if issubclass(metric, StreamingMetric)]
)
def test_every_state_is_a_value(name: str) -> None:
    """Sums are equal after a pickle and a copy, and in the order of merging."""
    rng = np.random.default_rng(0)
    first, second = (METRICS[name]().state(3) for _ in range(2))
    for state, rows in ((first, 9), (second, 7)):
        p = np.concatenate([rng.dirichlet(np.ones(3), rows), np.eye(3)[: rows - 7]])
        METRICS[name]().add(state, Predictions.from_probabilities(p, rng.integers(0, 3, len(p))))
    same = pickle.loads(pickle.dumps(first))
    assert same == first == copy.deepcopy(first) != second
    assert first.merge(second) == second.merge(first)
    assert same == first
