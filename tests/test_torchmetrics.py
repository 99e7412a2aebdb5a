"""Metrics for torchmetrics equal those of `recalib.evaluate`."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torchmetrics

import recalib
from recalib.errors import InputError, RecalibWarning
from recalib.metrics import METRICS
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.torchmetrics import CalibrationMetric, calibration_metrics
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(400, 5, 2.0)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def streamed() -> dict[str, float]:
    evaluation = StreamingEvaluation(5)
    evaluation.add(LABELS, logits=LOGITS)
    return {name: estimate.value for name, estimate in evaluation.finish().items()}


def updated(metric: torchmetrics.Metric | torchmetrics.MetricCollection, batches: int = 4) -> None:
    for rows in np.array_split(np.arange(len(LABELS)), batches):
        metric.update(torch.tensor(LOGITS[rows]), torch.tensor(LABELS[rows]))


def test_metrics_equal_those_of_evaluate() -> None:
    metrics = calibration_metrics(5)
    updated(metrics)
    result = {name: value.item() for name, value in metrics.compute().items()}
    assert result == pytest.approx(streamed(), rel=1e-12)
    expected = recalib.evaluate(LABELS, logits=LOGITS, metrics=["accuracy", "nll", "ece", "brier"])
    assert {name: result[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    kinds = {METRICS[name].state_kind for name in result}  # type: ignore[attr-defined]
    assert len(metrics.compute_groups) == len(kinds) < len(result)


def test_value_of_a_batch_does_not_change_the_total() -> None:
    metrics = calibration_metrics(5, ["accuracy", "ece"])
    batch = metrics(torch.tensor(LOGITS[:100]), torch.tensor(LABELS[:100]))
    metrics.update(torch.tensor(LOGITS[100:]), torch.tensor(LABELS[100:]))
    for rows, result in ((slice(100), batch), (slice(None), metrics.compute())):
        expected = recalib.evaluate(LABELS[rows], logits=LOGITS[rows], metrics=list(result))
        assert {name: float(value) for name, value in result.items()} == pytest.approx(expected)


def test_metrics_that_are_equal_at_first_do_not_share_a_state() -> None:
    """torchmetrics lets metrics share a state if the first batch gives them the same numbers."""
    metrics = calibration_metrics(6, ["accuracy", "top5_accuracy"])
    metrics.update(torch.eye(6) * 9, torch.arange(6))
    metrics.update(torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 2), torch.tensor([0, 1]))
    assert metrics.compute() == {"accuracy": 6 / 8, "top5_accuracy": 7 / 8}


def test_metrics_of_two_classes_are_those_of_two_classes() -> None:
    """ROC AUC of one class is NaN, as that of no row."""
    metrics = calibration_metrics(2, ["roc_auc", "binary_ece"])
    metrics.update(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    assert metrics.compute()["roc_auc"].isnan()
    metrics.update(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([0, 0]))
    assert metrics.compute()["roc_auc"] == 0.75
    with pytest.raises(InputError, match="found roc_auc of 3 classes; accepted: one of accuracy"):
        CalibrationMetric("roc_auc", classes=3)


def test_probabilities_narrow_types_and_two_classes() -> None:
    metric = CalibrationMetric("nll", classes=5, input="probabilities")
    metric.update(torch.tensor(PROBABILITIES), torch.tensor(LABELS))
    expected = recalib.evaluate(LABELS, PROBABILITIES, metrics=["nll"])["nll"]
    assert metric.compute().item() == pytest.approx(expected, rel=1e-12)
    narrow = torch.tensor(LOGITS, dtype=torch.bfloat16, requires_grad=True)
    metric = CalibrationMetric("brier", classes=5)
    metric.update(narrow, torch.tensor(LABELS))
    logits = narrow.detach().float().numpy()
    expected = recalib.evaluate(LABELS, logits=logits, metrics=["brier"])["brier"]
    assert metric.compute().item() == pytest.approx(expected, rel=1e-12)
    binary = CalibrationMetric("ece", classes=2)
    binary.update(torch.tensor(LOGITS[:, 0]), torch.tensor(LABELS % 2))
    expected = recalib.evaluate(LABELS % 2, logits=LOGITS[:, 0], metrics=["ece"])["ece"]
    assert binary.compute().item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.filterwarnings(
    "ignore:The ``compute`` method"
)  # torchmetrics saves no count of updates
def test_state_survives_pickle_and_state_dict() -> None:
    metric = CalibrationMetric("classwise_ece", classes=5)
    metric.persistent(True)
    updated(metric)
    other = CalibrationMetric("classwise_ece", classes=5)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    for copied in (other, pickle.loads(pickle.dumps(metric))):
        assert copied.compute().item() == metric.compute().item()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_without_rows_the_value_is_nan() -> None:
    assert math.isnan(CalibrationMetric(classes=5).compute())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("eec", {}, "did you mean ece"),
        ("ece_kde", {}, "found ece_kde of 5 classes; accepted: one of"),
        ("ece", {"input": "scores"}, "input: found 'scores'"),
        ("ece", {"classes": 4}, "preds: found 5 classes"),
    ],
)
def test_invalid_use_is_rejected(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        updated(CalibrationMetric(name, **{"classes": 5, **options}))


def worker(rank: int, file: str, folder: str) -> None:
    """Update with a part of the rows; write the value that all processes compute."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=2
    )
    metrics = calibration_metrics(5)
    rows = slice(0, 150) if rank == 0 else slice(150, None)
    metrics.update(torch.tensor(LOGITS[rows]), torch.tensor(LABELS[rows]))
    values = {name: value.item() for name, value in metrics.compute().items()}
    Path(folder, f"{rank}.pickle").write_bytes(pickle.dumps(values))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_compute_the_metrics_of_all_rows(tmp_path: Path) -> None:
    # Spawned processes would import torch again.
    arguments = str(tmp_path / "store"), str(tmp_path)
    torch.multiprocessing.start_processes(worker, arguments, nprocs=2, start_method="fork")
    for rank in (0, 1):
        values = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        assert values == pytest.approx(streamed(), rel=1e-12)


def test_probabilities_without_input_cause_a_warning() -> None:
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    with pytest.warns(RecalibWarning, match="preds: .* write input=.probabilities., otherwise"):
        CalibrationMetric("nll", classes=2).update(p, torch.tensor([0, 1]))
    CalibrationMetric("nll", classes=2, input="logits").update(p, torch.tensor([0, 1]))
