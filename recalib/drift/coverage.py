"""Label coverage: the labelled share of traffic, and whether it depends on the confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from recalib.drift.bin_groups import group_bins
from recalib.drift.calibration_sums import CalibrationSums

#: False alarm rate of the test that label rates do not depend on confidence.
_FALSE_FLAGS = 0.01
#: Smallest expected number of labelled, and of unlabelled, predictions in a cell: below it the test
#: statistic does not have a χ² distribution (Cochran 1954).
_MIN_EXPECTED = 5.0


@dataclass(frozen=True)
class Coverage:
    """The labelled share of the traffic, and whether it depends on the confidence."""

    #: n/N over all bins; 1 if lost traffic leaves more labels than counted predictions.
    share: float
    #: The p-value of the hypothesis that all bins have the same label rate; None if there is
    #: traffic without labels, and too little of it, or too few different confidences, for a test.
    p_value: float | None
    #: n/N of each bin (B,), None without traffic.
    by_bin: list[float | None]

    @property
    def selective(self) -> bool:
        """Whether label rates differ by confidence, at a significance level of 1%.

        Selection by confidence alone biases neither the test nor a window weighted by traffic.
        Selection by outcome biases both; it shows here because outcomes depend on confidence.
        Selection by outcome at equal rates for all confidences cannot be detected, and nothing can
        be detected where all traffic has one confidence.
        """
        return self.p_value is not None and self.p_value < _FALSE_FLAGS


def label_coverage(sums: CalibrationSums) -> Coverage | None:
    """Return the label coverage of the traffic in `sums`; None without traffic.

    Two tests share the error rate: Pearson's χ² test of labels and bins, and the Cochran-Armitage
    test of a trend over bins, which finds selection by outcome sooner. Bins with an expectation
    below 5 labelled or 5 unlabelled predictions are merged with a neighbour. The tests assume
    independent labels: if labels arrive for whole batches, there are more false alarms.

    Examples
    --------
    >>> from recalib.drift import CalibrationSums, label_coverage
    >>> sums = CalibrationSums.empty([0.8])
    >>> sums.add_counts([100, 300])
    >>> sums.add_labels(np.repeat([0.7, 0.9], 20), np.ones(40))
    >>> label_coverage(sums).share
    0.1
    """
    traffic = sums.seen
    total, labelled = int(traffic.sum()), int(sums.labelled.sum())
    if not total:
        return None
    share = labelled / total
    rates = [int(n) / int(of) if of else None for n, of in zip(sums.labelled, traffic, strict=True)]
    minimum = _MIN_EXPECTED / max(min(share, 1 - share), 1e-300)
    groups = group_bins(traffic, minimum)
    n, of = np.add.reduceat(sums.labelled, groups), np.add.reduceat(traffic, groups)
    if not 0 < share < 1:
        return Coverage(share, 1.0, rates)
    if len(groups) == 1:
        return Coverage(share, None, rates)
    off, variance = n - of * share, share * (1 - share)
    pearson = scipy.special.chdtrc(len(groups) - 1, np.sum(off**2 / of) / variance)
    # The mean rank of a bin's predictions among all.
    rank = (np.cumsum(of) - of / 2) / total
    spread = variance * (of @ (rank - of @ rank / total) ** 2)
    trend = scipy.special.chdtrc(1, (off @ rank) ** 2 / spread)
    return Coverage(share, min(1.0, 2 * float(min(pearson, trend))), rates)
