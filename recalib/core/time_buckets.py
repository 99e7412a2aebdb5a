"""Time buckets of counts of predictions, each of which is in one cohort of its model."""

from __future__ import annotations

import math


def bucket_start(time: float, bucket_seconds: int, cohort_seconds: float) -> int:
    """Return the start of the bucket of a time, in seconds.

    Buckets divide each cohort, and the last of a cohort ends with it. A cohort thus counts the
    predictions of its own time for any length of cohorts and buckets, at least one second each.
    """
    cohort = math.floor(time / cohort_seconds) * cohort_seconds
    return max(math.floor(time / bucket_seconds) * bucket_seconds, math.ceil(cohort))
