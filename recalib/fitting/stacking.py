"""The weights of a mixture, by the likelihood of held-out rows."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers

_Members = NDArray[np.intp]

#: A member with less weight is dropped, and the others are weighted again.
_LEAST_WEIGHT = 0.05


def mixture_weights(
    log_p: Numbers, row_weights: Numbers, costs: Numbers, price: float = 0.0
) -> tuple[Numbers, float]:
    """Return the weights w (M,) on the simplex that minimise −Σ r_i log Σ w_m p_im + Σ c_m w_m.

    The problem is convex. A member whose weight would be below .05 gets 0, and so does one without
    which the minimum rises by less than `price`. The second number is the minimum.

    Parameters
    ----------
    log_p: (N, M), log p_im: of the label of row i under member m, which was not fitted on the row.
    row_weights: (N,), r_i, with sum 1.
    costs: (M,), c_m, in nats.
    """
    largest = log_p.max(axis=1, keepdims=True)
    ratios = np.exp(log_p - largest)

    def solve(members: _Members) -> tuple[_Members, Numbers, float]:
        while True:
            weights, value = _minimise(ratios[:, members], row_weights, costs[members])
            if weights.min() >= _LEAST_WEIGHT:
                return members, weights, value
            members = members[weights >= _LEAST_WEIGHT]

    best = solve(np.arange(log_p.shape[1]))
    while len(best[0]) > 1:
        fewer = [solve(np.delete(best[0], i)) for i in range(len(best[0]))]
        next_best = min(fewer, key=lambda solution: solution[2])
        if next_best[2] - best[2] > price:
            break
        best = next_best
    members, weights, value = best
    result = np.zeros(log_p.shape[1])
    result[members] = weights
    return result, value - float(row_weights @ largest[:, 0])


def _minimise(ratios: Numbers, rows: Numbers, costs: Numbers) -> tuple[Numbers, float]:
    """Return the weights on the simplex and the minimum, for p = `ratios` (N, M)."""

    def objective(weights: Numbers) -> tuple[float, Numbers]:
        mixture = np.maximum(ratios @ weights, np.finfo(np.float64).tiny)
        slopes = costs - (rows / mixture) @ ratios
        return float(costs @ weights - rows @ np.log(mixture)), slopes

    count = len(costs)
    result = scipy.optimize.minimize(
        objective,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
        options={"ftol": 1e-10, "maxiter": 200},
    )
    weights: Numbers = np.clip(result.x, 0, None)
    weights /= weights.sum()
    return weights, objective(weights)[0]
