"""Metrics of dense predictions against scikit-learn, loops over pixels, and single evaluations."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, jaccard_score

from recalib.errors import InputError
from recalib.metrics import METRICS
from recalib.metrics.dense import DenseEvaluation, boundary_band, intersection_over_union
from recalib.metrics.evaluate import evaluate

K, VOID = 5, 255


def scenes(count: int = 6, seed: int = 0) -> tuple[Any, Any]:
    """Return logits (N, K, H, W) and labels (N, H, W) of blocks with a void border.

    Class 4 is never a label. The last image is void.
    """
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.repeat(rng.integers(0, K - 1, (count, 3, 4)), 4, axis=1), 3, axis=2)
    labels[:, ::5, ::4] = VOID
    labels[-1] = VOID
    logits = 1.5 * rng.standard_normal((count, K, *labels.shape[1:]))
    logits += np.eye(K)[np.minimum(labels, K - 1)].transpose(0, 3, 1, 2)
    return logits, labels


def rows_of(logits: Any, labels: Any) -> tuple[Any, Any]:
    counts = labels != VOID
    return logits.transpose(0, 2, 3, 1)[counts], labels[counts]


@pytest.fixture(scope="module")
def evaluation() -> DenseEvaluation:
    logits, labels = scenes()
    evaluation = DenseEvaluation(K, ignore_index=VOID, boundary=2)
    evaluation.add(labels[:4], logits=logits[:4])
    evaluation.add(labels[4:], logits=logits[4:])
    return evaluation


def test_iou_and_confusion_match_scikit_learn(evaluation: DenseEvaluation) -> None:
    """Void pixels are in no union; a class without a pixel has no IoU."""
    logits, labels = rows_of(*scenes())
    predicted = logits.argmax(axis=1)
    expected = confusion_matrix(labels, predicted, labels=range(K))
    np.testing.assert_array_equal(evaluation.confusion, expected)
    ious = jaccard_score(labels, predicted, labels=range(K), average=None)
    result = evaluation.finish()
    assert [c.iou for c in result.classes] == pytest.approx(ious)
    assert result.miou == pytest.approx(np.mean(ious))
    assert result.classes[4].pixels == 0 < result.classes[4].predicted
    assert np.isnan(intersection_over_union(np.diag([3, 0]))[1])


def test_metrics_of_pixels_are_those_of_rows(evaluation: DenseEvaluation) -> None:
    logits, labels = rows_of(*scenes())
    result = evaluation.finish(level=0.9)
    expected = evaluate(labels, logits=logits, metrics=["nll", "ece", "brier", "classwise_ece"])
    for name, metric in expected.items():
        assert result.pixels[name].value == pytest.approx(metric.value, rel=1e-12), name
    assert result.pixels["nll"].low is not None
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    nll, right = -np.log(p[np.arange(len(p)), labels]), p.argmax(axis=1) == labels
    assert result.nll_right == pytest.approx(nll[right].mean())
    assert result.nll_wrong == pytest.approx(nll[~right].mean())
    mean = np.mean([c.classwise_ece for c in result.classes])
    assert mean == pytest.approx(expected["classwise_ece"].value)


def test_classes_match_rows_predicted_as_them(evaluation: DenseEvaluation) -> None:
    logits, labels = rows_of(*scenes())
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for k, result in enumerate(evaluation.finish().classes):
        members = logits.argmax(axis=1) == k
        expected = evaluate(
            labels[members], logits=logits[members], metrics=["ece", "accuracy", "mean_confidence"]
        )
        assert result.predicted == members.sum()
        assert result.ece == pytest.approx(expected["ece"].value)
        assert result.precision == pytest.approx(expected["accuracy"].value)
        assert result.confidence == pytest.approx(p[members, k].mean())


def test_images_match_their_own_evaluation(evaluation: DenseEvaluation) -> None:
    """An image without a pixel that counts is left out; the others keep their positions."""
    logits, labels = scenes()
    result = evaluation.finish()
    assert [image.index for image in result.images] == [0, 1, 2, 3, 4]
    for image in result.images:
        z, y = rows_of(logits[image.index, None], labels[image.index, None])
        expected = evaluate(y, logits=z, metrics=["ece", "accuracy", "mean_confidence"])
        values = [image.ece, image.accuracy, image.confidence, image.pixels]
        names = ("ece", "accuracy", "mean_confidence")
        assert values == pytest.approx([*(expected[name].value for name in names), len(y)])
    eces = [image.ece for image in result.images]
    assert result.image_quantiles("ece", [0.5]).tolist() == [np.median(eces)]
    assert result.to_dict()["images"]["ece_mean"] == pytest.approx(np.mean(eces))


def test_boundary_band_matches_a_loop_over_pixels() -> None:
    _, labels = scenes(1, seed=3)
    labels = np.random.default_rng(0).permuted(scenes(2, seed=3)[1][0], axis=0)
    height, width = labels.shape
    for distance in (1, 3):
        band = boundary_band(labels, distance, VOID)
        for i, j in itertools.product(range(height), range(width)):
            near = labels[
                max(i - distance, 0) : i + distance + 1, max(j - distance, 0) : j + distance + 1
            ]
            others = set(near.ravel().tolist()) - {VOID, labels[i, j]}
            assert band[i, j] == (labels[i, j] != VOID and bool(others)), (i, j, distance)


def test_boundary_and_interior_are_parts_of_all_pixels(evaluation: DenseEvaluation) -> None:
    logits, labels = scenes()
    result = evaluation.finish()
    band = np.stack([boundary_band(image, 2, VOID) for image in labels])
    z, y = logits.transpose(0, 2, 3, 1), labels
    for part, members in ((result.boundary, band), (result.interior, ~band & (labels != VOID))):
        expected = evaluate(y[members], logits=z[members], metrics=["ece", "nll"])
        assert part is not None
        for name in ("ece", "nll"):
            assert part[name].value == pytest.approx(expected[name].value)
    assert result.boundary_share == pytest.approx(band.sum() / (labels != VOID).sum())


def test_merge_is_the_evaluation_of_all_images(evaluation: DenseEvaluation) -> None:
    logits, labels = scenes()
    parts = []
    for images in (slice(0, 2), slice(2, 6)):
        parts.append(DenseEvaluation(K, ignore_index=VOID, boundary=2))
        parts[-1].add(labels[images], logits=logits[images])
    merged = copy.deepcopy(parts[0]).merge(parts[1]).finish()
    expected = evaluation.finish()
    assert merged.images == expected.images
    for ours, theirs in zip(merged.classes, expected.classes, strict=True):
        assert vars(ours) == pytest.approx(vars(theirs))
    for name, estimate in expected.pixels.items():
        assert merged.pixels[name].value == pytest.approx(estimate.value), name
    with pytest.raises(ValueError, match="options"):
        parts[0].merge(DenseEvaluation(K, ignore_index=VOID, boundary=1))


def test_probabilities_and_no_void_label() -> None:
    logits, _ = scenes()
    labels = logits.argmax(axis=1)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    evaluation = DenseEvaluation(K)
    evaluation.add(labels, probabilities=p)
    result = evaluation.finish()
    assert (result.miou, result.pixels["accuracy"].value) == (1.0, 1.0)
    assert set(result.pixels) <= set(METRICS)


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [
        (np.zeros((2, 4, 4), int), np.zeros((2, 3, 4, 4)), "logits.*n, 5, H, W"),
        (np.zeros((2, 4, 3), int), np.zeros((2, K, 4, 4)), r"labels.*\(2, 4, 4\)"),
        (np.full((1, 4, 4), 254), np.zeros((1, K, 4, 4)), "labels.*254.*0 to 4"),
    ],
)
def test_invalid_batches_are_refused(labels: Any, logits: Any, message: str) -> None:
    evaluation = DenseEvaluation(K, ignore_index=VOID)
    with pytest.raises(InputError, match=message):
        evaluation.add(labels, logits=logits)
    evaluation.add(np.full((1, 4, 4), VOID), logits=np.zeros((1, K, 4, 4)))
    with pytest.raises(InputError, match="no pixel"):
        evaluation.finish()
