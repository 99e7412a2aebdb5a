"""Clusters of classes whose labels have alike scores, for thresholds that classes share.

Legend: N rows, K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.stats.groups import group_counts

vq = LazyModule("scipy.cluster.vq")

#: A class is described by these quantiles of the scores of its rows, and by that of the coverage.
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
#: From the paper: K / (75 + K) of the rows find the clusters, two rows of a class for each of them.
_CLASSES_FOR_HALF, _ROWS_OF_CLUSTER = 75, 2


def cluster_classes(
    scores: NDArray[np.float64],
    labels: NDArray[np.intp],
    classes: int,
    coverage: float,
    least_rows: int,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the number of the cluster of each class, and the rows that are left for thresholds.

    A share of the rows, drawn at random, finds the clusters: k-means of quantiles of the scores of
    each class. Thresholds come from the others, or rows and new ones would not be exchangeable.
    Classes with fewer than `least_rows` rows of that share are together in the null cluster,
    number K.

    Parameters
    ----------
    scores, labels: (N,), of rows that the map was not fitted on.
    least_rows: those of a finite threshold.

    Source: Ding, Angelopoulos, Bates, Jordan and Tibshirani 2023, with equal weights of classes,
    and the number of clusters from the class of median size in place of the smallest.
    """
    counts = group_counts(labels, classes)
    large = counts[counts >= least_rows]
    share = len(large) / (_CLASSES_FOR_HALF + len(large))
    clusters = int(share * np.median(large)) // _ROWS_OF_CLUSTER if len(large) else 0
    groups = np.full(classes, classes)
    if clusters < 2:
        return groups, np.ones(len(labels), np.bool_)
    rng = np.random.default_rng(0)
    finds = rng.random(len(labels)) < share
    kept = np.flatnonzero(group_counts(labels[finds], classes) >= least_rows)
    if len(kept) > clusters:
        levels = (*_LEVELS, coverage)
        rows = [np.quantile(scores[finds & (labels == k)], levels) for k in kept]
        centres, _ = vq.kmeans(np.array(rows), clusters, rng=rng)
        groups[kept] = vq.vq(np.array(rows), centres)[0]
    return groups, ~finds
