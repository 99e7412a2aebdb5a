"""Sums of traffic that another program has counted, independent of the transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from recalib.contract.labels import TrafficAnswer
from recalib.core.arrays import Floats
from recalib.core.time_buckets import bucket_start
from recalib.drift.reference_histogram import reference_edges, reference_target
from recalib.errors import InputError
from recalib.registry import Model, TrafficCount, merge_counts
from service.idempotency import run_once
from service.labels.schemas import TrafficBucket, TrafficSums
from service.serving.loaded_calibrators import LoadedCalibrator
from service.state import State

#: Maximum clock difference of sender and database, as for prediction ids.
_SKEW_SECONDS = 300.0
#: Tolerated rounding of a confidence.
_ROUNDING = 1e-5


def add_traffic(
    state: State, loaded: LoadedCalibrator, sums: TrafficSums, key: str | None
) -> TrafficAnswer:
    """Add predictions that another program made with a calibrator to the counts of traffic.

    Buckets older than `maturity_seconds`, whose cohorts may have been read, are not added.

    Parameters
    ----------
    key: idempotency key; without it, a repeated request counts twice.

    Raises
    ------
    NotFoundError: the model does not exist.
    InputError: the target, the bins or the sums do not match the calibrator, a bucket begins in the
        future, or the model is multilabel.
    ConflictError: the key was used for another request.
    """
    bucket_seconds = state.calibrators.traffic.bucket_seconds
    with state.registry.transaction() as tx:
        model = tx.models.get(loaded.model)
        model.check_multiclass("sums of traffic")
        now = tx.clock()
        _check_sums(sums, loaded, now)
        read = tx.monitors.through(model, [loaded.version]).get(loaded.version, 0.0)
        oldest = max(now - model.monitoring.maturity_seconds, read)

        def act() -> TrafficAnswer:
            current = [bucket for bucket in sums.buckets if bucket.started_at >= oldest]
            segment = loaded.stream.segment_of(sums.segment)
            tx.traffic.add(merge_counts(_counts(model, loaded, current, segment, bucket_seconds)))
            accepted = _predictions(current)
            return TrafficAnswer(accepted=accepted, expired=_predictions(sums.buckets) - accepted)

        operation = f"add_traffic {loaded.model} {loaded.version}"
        return run_once(tx, key, operation, sums, 200, TrafficAnswer, act)


def _check_sums(sums: TrafficSums, loaded: LoadedCalibrator, now: float) -> None:
    target = reference_target(loaded.calibrator.card)
    if sums.target != target:
        accepted = f"{target}, as `confidences.target` of the calibrator's card"
        raise InputError("target", found=sums.target, accepted=accepted)
    edges = np.array([0.0, *reference_edges(loaded.calibrator.card), 1.0])
    for number, bucket in enumerate(sums.buckets):
        _check(bucket, f"buckets[{number}]", edges, now)


def _predictions(buckets: Sequence[TrafficBucket]) -> int:
    return sum(sum(bucket.predictions) for bucket in buckets)


def _check(bucket: TrafficBucket, field: str, edges: Floats, now: float) -> None:
    bins = len(edges) - 1
    for name, values in (
        ("predictions", bucket.predictions),
        ("confidence_sums", bucket.confidence_sums),
    ):
        if len(values) != bins:
            accepted = f"{bins}, one for each bin of the calibrator"
            raise InputError(f"{field}.{name}", found=f"{len(values)} numbers", accepted=accepted)
    if bucket.started_at > now + _SKEW_SECONDS:
        ahead = f"{bucket.started_at - now:.0f} seconds from now"
        raise InputError(f"{field}.started_at", found=ahead, accepted="a time in the past")
    predictions, sums = np.array(bucket.predictions), np.array(bucket.confidence_sums)
    outside = (sums < (edges[:-1] - _ROUNDING) * predictions) | (
        sums > (edges[1:] + _ROUNDING) * predictions
    )
    if outside.any():
        bin = int(outside.argmax())
        found = f"{sums[bin]:g} of {predictions[bin]} predictions"
        accepted = f"a mean confidence from {edges[bin]:.6g} to {edges[bin + 1]:.6g}, as in its bin"
        raise InputError(f"{field}.confidence_sums[{bin}]", found=found, accepted=accepted)


def _counts(
    model: Model,
    loaded: LoadedCalibrator,
    buckets: Sequence[TrafficBucket],
    segment: int,
    bucket_seconds: int,
) -> Iterator[TrafficCount]:
    for bucket in buckets:
        start = bucket_start(bucket.started_at, bucket_seconds, model.monitoring.cohort_seconds)
        key = (model.id, loaded.version, start, segment)
        for bin, (count, total) in enumerate(
            zip(bucket.predictions, bucket.confidence_sums, strict=True)
        ):
            if count:
                yield TrafficCount(*key, bin, count, count, total)
