"""`python -m benchmarks.harm`: how often does a fit that does no harm warn of harm?

Logits are those of calibrated classifiers, so the identity is right. Each fit's loss is measured
by its expected NLL on 4,000 other rows. Output, for each map: the draws within .005 nats of the
identity, how many have a diagnostic, and the exact 95% interval of this share; the mean loss over
the identity on other rows, and as the fit estimates it. The goal is at most 1% of all such draws.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.special
import scipy.stats

from recalib.errors import RecalibWarning
from recalib.fitting.fit import fit

_MAPS = ("temperature", "vector", "beta", "isotonic", "histogram_binning", "spline")
_SIZES = ((200, 2), (1_000, 2), (1_000, 5))
_NEAR = 0.005


def main(arguments: list[str] | None = None) -> None:
    """Draw rows, fit each map, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harm", description=__doc__)
    parser.add_argument("--draws", type=int, default=30, help="draws of each size and map")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", RecalibWarning)
    near, warned = 0, 0
    for name in _MAPS:
        rows = np.array([_draw(name, *size, i) for size in _SIZES for i in range(options.draws)])
        is_near = np.abs(rows[:, 0]) < _NEAR
        count, total = int(rows[is_near, 2].sum()), int(is_near.sum())
        near, warned = near + total, warned + count
        print(f"{name:18} {_share(count, total)}  loss {rows[:, 0].mean():+.4f}", end="")
        print(f", estimate {rows[:, 1].mean():+.4f}")
    print(f"{'all':18} {_share(warned, near)}")


def _draw(map: str, rows: int, classes: int, seed: int) -> tuple[float, float, bool]:
    """Return the loss over the identity on other rows, its estimate, and whether it warns."""
    random = np.random.default_rng([rows, classes, seed])
    z = 2 * random.normal(size=(rows, classes))
    calibrator = fit(z, (z + random.gumbel(size=z.shape)).argmax(axis=1), map)
    others = 2 * random.normal(size=(4_000, classes))
    p = scipy.special.softmax(others, axis=1)
    fitted = np.maximum(calibrator.predict(others), 1e-38)
    estimate = calibrator.card.fit.estimates["nll"]
    loss = float(scipy.special.rel_entr(p, fitted).sum(axis=1).mean())
    gain = estimate.value - estimate.references["identity"]
    return loss, gain, bool(calibrator.card.fit.diagnostics)


def _share(count: int, total: int) -> str:
    if total == 0:
        return "0 draws near the identity"
    low, high = scipy.stats.binomtest(count, total).proportion_ci(method="exact")
    return f"{count} of {total} warn ({low:.2%} to {high:.2%})"


if __name__ == "__main__":
    main()
