"""The benchmark of the estimator: twenty tasks with few positive rows, and paired differences."""

from __future__ import annotations

import numpy as np
from sklearn.dummy import DummyClassifier

from benchmarks.estimator import METHODS, Task, differences, scores, tasks


def test_tasks_have_few_positive_rows_of_which_some_are_for_the_test() -> None:
    drawn = list(tasks())
    assert len({task.name for task in drawn}) == 20
    for task in drawn:
        assert 0 < task.y.mean() <= 0.2
        assert set(task.y) == set(task.test_y) == {0, 1}


def test_every_classifier_learns_the_base_rate_without_other_evidence() -> None:
    y = np.arange(400) % 10 == 0
    result = scores(Task("", np.zeros((400, 1)), y, np.zeros((400, 1)), y, DummyClassifier()))
    rate = 0.1
    entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
    assert result.shape == (1 + len(METHODS), 2)
    np.testing.assert_allclose(result, [[entropy, rate * (1 - rate)]] * 4, rtol=0.02)


def test_differences_by_hand() -> None:
    """Ours is better by 1 than the first and the third method, and worse by 1 than the second."""
    values = np.array([[[2.0, 0.2], [3.0, 0.3], [1.0, 0.1], [3.0, 0.3]]])
    paired = differences(values)
    np.testing.assert_allclose(paired["sigmoid"], [[-1.0, -0.1]])
    np.testing.assert_allclose(paired["isotonic"], [[1.0, 0.1]])
    np.testing.assert_allclose(paired["best of each task"], [[1.0, 0.1]])
