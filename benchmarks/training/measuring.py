"""Metrics of a run: before and after post-hoc maps, on test rows and under shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.fitting import fit
from recalib.metrics.evaluate import evaluate

#: Those of paper 000, tables 1, 2, 4 and 6, and of paper 004, tables 1 to 13.
METRICS = (
    "accuracy", "ece", "ece_l2_equal_mass", "ece_equal_mass", "classwise_ece", "ks_error",
    "ece_sweep", "marginal_ece_l2", "mce", "s99", "nll",
)  # fmt: skip
#: Fitted to the validation rows. `""` is the network itself.
MAPS: dict[str, dict[str, Any]] = {
    "": {"map": "identity", "objective": "nll"},
    "TS": {"map": "temperature", "objective": "nll"},
    "TS-SB-ECE": {"map": "temperature", "objective": "sb_ece"},
    "Dirichlet": {"map": "dirichlet", "objective": "nll"},
}
#: Paper 000, figures 2 and 7: ℓ2 error over bins of equal mass.
_UNDER_SHIFT = ("accuracy", "ece_l2_equal_mass", "nll")


def measure(
    arrays: Mapping[str, NDArray[Any]],
    maps: Mapping[str, Mapping[str, Any]] = MAPS,
    validation: Sequence[str] = (),
) -> dict[str, Any]:
    """Return ``{map: {"test": {metric: value}, "shifted": [{metric: value} by severity]}}``.

    Under shift, each number is the mean over corruptions, and `by_corruption` are the ℓ2 errors of
    each; without shifted arrays the list is empty. With `validation`, names of metrics, the item
    ``"validation"`` has those of the network on the validation rows.
    """
    results: dict[str, Any] = {}
    for name, options in maps.items():
        fitted = fit(arrays["validation_logits"], arrays["validation_labels"], **options)
        test = evaluate(
            arrays["test_labels"],
            probabilities=fitted.predict(arrays["test_logits"]),
            metrics=METRICS,
        )
        by_severity = []
        shifted = arrays["shifted_logits"].swapaxes(0, 1) if "shifted_logits" in arrays else ()
        for logits in shifted:
            estimates = [
                evaluate(
                    arrays["shifted_labels"],
                    probabilities=fitted.predict(corrupted),
                    metrics=_UNDER_SHIFT,
                )
                for corrupted in logits
            ]
            means = {
                metric: float(np.mean([estimate[metric].value for estimate in estimates]))
                for metric in estimates[0]
            }
            errors = [float(estimate[_UNDER_SHIFT[1]].value) for estimate in estimates]
            by_severity.append(means | {"by_corruption": errors})
        results[name] = {
            "test": {metric: float(estimate.value) for metric, estimate in test.items()},
            "shifted": by_severity,
        }
    if validation:
        logits, labels = arrays["validation_logits"], arrays["validation_labels"]
        metrics = evaluate(labels, logits=logits, metrics=validation)
        results["validation"] = {name: float(metric.value) for name, metric in metrics.items()}
    return results
