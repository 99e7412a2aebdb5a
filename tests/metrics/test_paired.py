"""Changes of metrics on the same rows: independent formulas, and the coverage of intervals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from recalib.errors import InputError
from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import Change, paired_changes
from tests.draws import few_or_many
from tests.fitting.conftest import draw

_NAMES = ("accuracy", "nll", "brier", "ece", "aurc")


def pair(rows: int, temperature: float, seed: int = 0) -> tuple[Predictions, Predictions]:
    """Overconfident predictions, and the same rows with the true temperature."""
    logits, labels = draw(rows, 4, temperature, seed)
    return (
        Predictions.from_logits(logits, labels),
        Predictions.from_logits(logits / temperature, labels),
    )


def changes(before: Predictions, after: Predictions, names=_NAMES) -> dict[str, Change]:
    metrics = [
        {name: METRICS[name](15).measure(p, 0.95) for name in names} for p in (before, after)
    ]
    return paired_changes(before, after, *metrics)


def values_without_groups(p: Predictions, name: str) -> np.ndarray:
    """Each of the 20 groups left out, by `evaluate` on the rows that remain."""
    groups = np.array_split(np.random.default_rng(0).permutation(len(p)), 20)
    rest = [np.setdiff1d(np.arange(len(p)), group) for group in groups]
    return np.array(
        [
            evaluate(p.labels[rows], probabilities=p.probabilities[rows], metrics=[name])[
                name
            ].value
            for rows in rest
        ]
    )


def test_change_of_a_mean_has_students_interval_of_group_means() -> None:
    before, after = pair(1000, 2.0)
    change = changes(before, after)["nll"]
    difference = before.label_log_probabilities - after.label_log_probabilities
    groups = np.array_split(np.random.default_rng(0).permutation(1000), 20)
    means = np.array([difference[group].mean() for group in groups])
    low, high = scipy.stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert change.value == pytest.approx(difference.mean())
    # The other interval, by the correlation, may be a little wider.
    assert change.low <= low + 1e-12
    assert change.high >= high - 1e-12
    assert change.high - change.low <= 1.1 * (high - low)
    assert change.verdict == "better"


def test_change_of_a_calibration_error_joins_both_intervals() -> None:
    """By the formula of Zou and Donner, one group after the other."""
    logits, labels = draw(1500, 4, 3.0)
    before, after = (Predictions.from_logits(logits / t, labels) for t in (1.0, 2.0))
    change = changes(before, after, ["ece"])["ece"]
    b, a = (METRICS["ece"](15).measure(p, 0.95) for p in (before, after))
    r = np.corrcoef(*(values_without_groups(p, "ece") for p in (before, after)))[0, 1]
    assert b.low > 0
    assert a.low > 0
    below, above = a.value - a.low, b.high - b.value
    low = a.value - b.value - np.sqrt(below**2 + above**2 - 2 * r * below * above)
    below, above = b.value - b.low, a.high - a.value
    high = a.value - b.value + np.sqrt(below**2 + above**2 - 2 * r * below * above)
    assert (change.low, change.high) == pytest.approx((low, high), abs=1e-9)


def test_states_and_rows_give_the_same_replicates() -> None:
    """`aurc` reads rows; with the same probabilities twice, its changes are 0."""
    before, after = pair(200, 2.0)
    change = changes(before, after)["aurc"]
    replicates = values_without_groups(after, "aurc") - values_without_groups(before, "aurc")
    error = np.sqrt(19 * replicates.var())
    assert change.high >= change.value + scipy.stats.t.ppf(0.975, 19) * error - 1e-12


def test_correlation_by_chance_does_not_narrow_the_interval() -> None:
    """After calibration the gaps have random signs: at least the width of independent errors."""
    for seed in range(5):
        before, after = pair(400, 1.3, seed)
        change = changes(before, after, ["ece"])["ece"]
        b, a = (METRICS["ece"](15).measure(p, 0.95) for p in (before, after))
        assert a.low == 0
        assert change.high - change.value >= np.hypot(b.value - b.low, a.high - a.value) - 1e-12


@pytest.mark.slow
@few_or_many(8, 100)
def test_intervals_cover_the_true_change(draws: int) -> None:
    """95% intervals; the truth is the change on 50,000 rows of the same population."""
    population = pair(50_000, 1.3, 10**6)
    values = [{name: METRICS[name](15).measure(p).value for name in _NAMES} for p in population]
    truth = {name: values[1][name] - values[0][name] for name in _NAMES}
    hits = dict.fromkeys(_NAMES, 0)
    for seed in range(draws):
        for name, change in changes(*pair(500, 1.3, seed)).items():
            hits[name] += change.low <= truth[name] <= change.high
    # A binomial count of `draws` at 95% is below these with probability under 1e-3.
    least = scipy.stats.binom.ppf(1e-3, draws, 0.93)
    assert all(count >= least for count in hits.values()), hits
    assert hits["accuracy"] == draws


def test_equal_predictions_do_not_change() -> None:
    before, _ = pair(300, 2.0)
    assert set(changes(before, before).values()) == {Change(0.0, 0.0, 0.0, "equal")}


def test_verdict_has_the_direction_of_the_metric() -> None:
    before, after = pair(2000, 3.0)
    names = ("nll", "ece", "accuracy", "mean_confidence")
    for first, second, verdict in ((before, after, "better"), (after, before, "worse")):
        result = changes(first, second, names)
        assert [result[name].verdict for name in names] == [verdict, verdict, "equal", "none"]
    wrong = Predictions.from_probabilities(1 - after.probabilities, after.labels)
    assert changes(wrong, after, ["accuracy"])["accuracy"].verdict == "better"


def test_metric_without_an_interval_has_no_change() -> None:
    assert changes(*pair(200, 2.0), ["nll", "classwise_loss_std"]).keys() == {"nll"}


def test_rows_that_do_not_match_are_rejected() -> None:
    before, _ = pair(100, 2.0)
    _, other = pair(100, 2.0, seed=1)
    with pytest.raises(InputError, match="after: found other labels"):
        changes(before, other)
    single = before.take(np.array([3]))
    nothing: dict[str, Estimate] = {}
    with pytest.raises(InputError, match="at least two rows"):
        paired_changes(single, single, nothing, nothing)
