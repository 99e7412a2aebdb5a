"""Noise floors: calibration errors of a perfectly calibrated model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn_gaps", "noise_floor"]

Vector = NDArray[np.float64]

#: The number of draws over all bins, and the limits on the draws of each bin. The errors of many
#: bins average, so fewer draws are enough.
_TOTAL_DRAWS = 200_000
_MIN_DRAWS, _MAX_DRAWS = 100, 2000
#: Numbers drawn at a time, which bounds memory if each of a million rows is a bin.
_CHUNK = 2**20
#: Metrics of the same bins share draws, up to this many numbers (3 MB) and bins.
_SHARED, _KINDS = 400_000, 4


def noise_floor(
    statistic: Callable[[NDArray[np.float64]], Vector],
    counts: NDArray[np.int64],
    confidences: Vector,
    variances: Vector,
) -> tuple[float, float]:
    """Return mean and 95th percentile of an error of a perfectly calibrated model's gaps.

    Labels are drawn from the confidences: the successes in a bin of n rows and mean confidence p̄
    are binomial with n and p̄. This is exact if all confidences are equal; otherwise the draws are
    scaled about their mean to the exact variance Σp(1 − p). The draws are the same in every call.
    The standard error of the mean is 1% over 15 bins and 2% over one.

    Parameters
    ----------
    statistic: a function from gaps (S, B) to errors (S,).
    counts: (B,), n; at least 1.
    confidences: (B,), p̄.
    variances: (B,), variances of the gaps of calibrated bins, Σp(1 − p)/n².
    """
    draws = int(np.clip(_TOTAL_DRAWS // len(counts), _MIN_DRAWS, _MAX_DRAWS))
    samples: Iterable[NDArray[np.float64]]
    if draws * len(counts) <= _SHARED:
        sums = (array.astype(np.float64).tobytes() for array in (confidences, variances))
        samples = [_shared_gaps(counts.astype(np.int64).tobytes(), *sums, draws)]
    else:
        samples = drawn_gaps(counts, confidences, variances, draws)
    errors = np.concatenate([statistic(gaps) for gaps in samples])
    return float(errors.mean()), float(np.quantile(errors, 0.95))


@lru_cache(_KINDS)
def _shared_gaps(
    counts: bytes, confidences: bytes, variances: bytes, draws: int
) -> NDArray[np.float64]:
    """Return `drawn_gaps` (S, B) of the arrays with these bytes; not to be changed."""
    sums = np.frombuffer(confidences), np.frombuffer(variances)
    (gaps,) = drawn_gaps(np.frombuffer(counts, np.int64), *sums, draws)
    gaps.flags.writeable = False
    return gaps


def drawn_gaps(
    counts: NDArray[np.int64], confidences: Vector, variances: Vector, draws: int
) -> Iterator[NDArray[np.float64]]:
    """Yield chunks of gaps (S, B) of a perfectly calibrated model, see `noise_floor`."""
    share = np.clip(confidences, 0.0, 1.0)
    binomial = share * (1 - share) / counts
    stretch = np.sqrt(np.divide(variances, binomial, out=np.zeros_like(share), where=binomial > 0))
    rng = np.random.default_rng(0)
    step = max(1, _CHUNK // len(counts))
    # A bin of one row needs a uniform draw, several times as fast as a binomial one.
    single, several = np.flatnonzero(counts == 1), np.flatnonzero(counts > 1)
    for start in range(0, draws, step):
        size = min(step, draws - start)
        gaps = np.empty((size, len(counts)))
        gaps[:, single] = rng.random((size, len(single))) < share[single]
        n = counts[several]
        gaps[:, several] = rng.binomial(n, share[several], (size, len(several))) / n
        gaps -= share
        gaps *= stretch
        yield gaps
