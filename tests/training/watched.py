"""A model with a champion, and simulated traffic and labels."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlalchemy import update

from recalib.calibrator import Calibrator
from recalib.core.card import ConfidenceHistogram, PredictionSets
from recalib.core.prediction_ids import Prediction, mint, read_ids, summarise_predictions
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.reference_histogram import reference_target
from recalib.drift.target import monitored_probabilities
from recalib.fitting.fit import fit
from recalib.registry import (
    Capture,
    ClassTrafficCount,
    Model,
    MonitoringSettings,
    Registry,
    TrafficCount,
    monitoring_tables,
)
from recalib.shift import ShadowState
from service.serving.logit_sampling import _parquet, _Sample
from tests.fitting.conftest import draw
from tests.registry.scenes import a_lease

LENGTH, MATURITY = 60.0, 120.0
WATCHING = MonitoringSettings(
    cohort_seconds=LENGTH, maturity_seconds=MATURITY, least_labels=200, window_labels=1_000
)
CAPTURING = replace(WATCHING, capture=1.0)


@cache
def _calibrator(classes: int) -> Calibrator:
    return fit(*draw(2_000, classes, 3.0), map="temperature")


def a_champion(
    registry: Registry,
    monitoring: MonitoringSettings = WATCHING,
    name: str = "resnet",
    *,
    classes: int = 4,
    histogram: ConfidenceHistogram | None = None,
    sets: PredictionSets | bool = False,
    max_risk: float | None = None,
    with_dataset: bool = False,
    names: tuple[str, ...] | None = None,
) -> Model:
    """Publish a calibrator with a real card as the champion of a model.

    Parameters
    ----------
    histogram: in the card, instead of that of the fit.
    sets: of the card, or whether it has prediction sets that promise 90%.
    max_risk: of its threshold of rejection; None for none.
    with_dataset: whether the rows of the fit are a data set of the model.
    names: of the classes, and of the columns and labels of the data set.
    """
    calibrator = _calibrator(classes)
    if isinstance(sets, PredictionSets):
        calibrator = calibrator.with_sets(sets)
    elif sets:
        calibrator = calibrator.fit_sets(*draw(2_000, classes, 3.0, seed=7), "raps", 0.9)
    if max_risk is not None:
        calibrator = calibrator.fit_rejection(*draw(2_000, classes, 3.0, seed=7), max_risk)
    if histogram is not None:
        described = msgspec.structs.replace(calibrator.card, confidences=histogram)
        calibrator = Calibrator(calibrator.parameters, described)
    with registry.transaction() as tx:
        model = tx.models.create(name, names, classes, "anna", monitoring)
    lease, dataset = a_lease(registry), None
    if with_dataset:
        dataset = _store_rows(registry, model)
    with registry.transaction() as tx:
        card = calibrator.card.to_dict()
        data = calibrator.to_bytes()
        tx.calibrators.publish(lease, model, dataset, card, data, "champion", "better")
        tx.jobs.succeed(lease, {})
        return tx.models.get(name)


def _store_rows(registry: Registry, model: Model) -> str:
    """Store the rows of the fit; return the name of the data set."""
    logits, labels = draw(2_000, model.classes, 3.0)
    file, media_type = io.BytesIO(), "application/x-npz"
    if model.labels is None:
        np.savez(file, logits=logits, labels=labels)
    else:
        media_type = "application/vnd.apache.parquet"
        columns = dict(reversed(list(zip(model.labels, logits.T, strict=True))))
        texts = np.array(model.labels)[labels].tolist()
        pq.write_table(pa.table({**columns, "label": texts}), file)
    with registry.blobs.writer() as blob:
        blob.write(file.getvalue())
        digest = blob.commit()
    with registry.transaction() as tx:
        what = 2_000, model.classes, blob.size, media_type, "logits"
        tx.datasets.create(model, "validation", digest, *what, {})
    return "validation"


class Stream:
    """Simulated predictions of the champion, timed by the database clock, and their labels."""

    def __init__(self, registry: Registry, model: Model, seed: int = 0) -> None:
        self.registry, self.model = registry, model
        self.random = np.random.default_rng(seed)
        with registry.reading() as tx:
            self.now = tx.clock()
            card: Any = tx.calibrators.get(model, 1).card
        self.edges = np.array(card["confidences"]["edges"])
        self._shares = np.array(card["confidences"]["counts"]) / sum(card["confidences"]["counts"])
        self._number = 0

    def send(
        self,
        rows: int,
        *,
        ago: float,
        seconds: float = LENGTH,
        slope: float = 1.0,
        shift: float = 0.0,
        delay: float = 5.0,
        labelled: float = 1.0,
        segment: int = 0,
        version: int = 1,
        predicted: int = 1,
    ) -> NDArray[np.float64]:
        """Make predictions over `seconds` from `ago` before now; return confidences.

        Parameters
        ----------
        slope: slope of the true log-odds against the predicted log-odds; 1 is calibrated, below 1
            is overconfident.
        shift: of the true log-odds; below 0, the predictions are too sure.
        labelled: share of predictions with a label.
        predicted: the predicted class of all of them.
        """
        p = self._confidences(rows)
        truth = 1 / (1 + ((1 - p) / p) ** slope * np.exp(-shift))
        correct = self.random.random(rows) < truth
        times = self.now - ago + np.arange(rows) * seconds / rows
        counted = np.zeros((rows, 2), np.int64)
        counted[:, 0] = times // 60 * 60
        counted[:, 1] = left_closed_bins(self.edges, p)
        cells, counts = np.unique(counted, axis=0, return_counts=True)
        labels = []
        for at, confidence, right in zip(times, p, correct, strict=True):
            self._number += 1
            digest = self._number.to_bytes(16, "big")
            prediction = Prediction(
                self.model.id, version, at, 0.9, confidence, predicted, digest, segment
            )
            if self.random.random() < labelled:
                labels.append((prediction, predicted if right else 0))
        with self.registry.transaction() as tx:
            tx.traffic.add(
                TrafficCount(self.model.id, version, int(start), segment, int(bin), int(count))
                for (start, bin), count in zip(cells, counts, strict=True)
            )
            starts, where = np.unique(counted[:, 0], return_inverse=True)
            totals = np.bincount(where), np.bincount(where, np.maximum(p, 1 - p))
            if self.model.monitoring.classes:
                tx.class_traffic.add(
                    ClassTrafficCount(
                        self.model.id, version, int(start), predicted, int(n), float(e)
                    )
                    for start, n, e in zip(starts, *totals, strict=True)
                )
            tx.labels.add(self.model, labels)
            self._arrive(tx, delay, version)
        return p

    def _confidences(self, rows: int) -> NDArray[np.float64]:
        """Draw from the histogram of the calibration set."""
        bins = self.random.choice(len(self._shares), rows, p=self._shares)
        ends = np.concatenate([[self.edges[0] - 0.1], self.edges, [1 - 1e-4]])
        p = ends[bins] + self.random.random(rows) * (ends[bins + 1] - ends[bins])
        return p.astype(np.float32).astype(np.float64)

    def _arrive(self, tx: Any, delay: float, version: int) -> None:
        """Set the arrival time of the newest labels to `delay` seconds after their predictions."""
        table = monitoring_tables.labels
        tx.connection.execute(
            update(table)
            .where(table.c.labelled_at >= self.now - 1, table.c.version == version)
            .values(labelled_at=table.c.predicted_at + delay)
        )


def serve(
    registry: Registry,
    model: Model,
    *,
    ago: float,
    temperature: float,
    rows: int = 1_500,
    seconds: float = 600.0,
    seed: int = 1,
    version: int = 1,
    save_logits: bool = True,
    label: Callable[[NDArray[np.float32]], NDArray[np.int64]] | None = None,
    shares: Sequence[float] | None = None,
    state: ShadowState | None = None,
    delay: float = 5.0,
) -> None:
    """Serve rows of true temperature `temperature`, with ids, labels and saved logits.

    Parameters
    ----------
    label: return the labels from the probabilities served, (rows, K), instead of true ones.
    shares: of the classes, instead of even ones.
    state: adapts the answers to label shift.
    delay: of the labels, in seconds.
    """
    logits, truth = draw(
        rows if shares is None else 8 * rows, model.classes, temperature, seed=seed
    )
    if shares is not None:
        keep = np.random.default_rng(seed).random(len(truth)) < np.array(shares)[truth]
        logits, truth = logits[keep][:rows], truth[keep][:rows]
        assert len(truth) == rows
    logits = logits.astype(np.float32)
    with registry.transaction() as tx:
        key, now = tx.signing_keys.first(), tx.clock()
        champion = Calibrator.from_bytes(tx.calibrators.parameters(model, version))
    probabilities, number = champion.predict_float32(logits), 0
    if state is not None:
        probabilities, number = state.answer(probabilities), state.number
    truth = truth if label is None else label(probabilities)
    times = now - ago + np.arange(rows) * seconds / rows
    summaries = (summarise_predictions(logits[[n]], probabilities[[n]]) for n in range(rows))
    ids = [
        mint(key, model.id, version, at, summary, adaptation=number)[0]
        for at, summary in zip(times, summaries, strict=True)
    ]
    read: Any = read_ids(ids, {1: key}, model=model.id, now=now, lifetime_seconds=1e9)
    stream = Stream(registry, model)
    monitored = monitored_probabilities(probabilities, reference_target(champion.card))
    places = left_closed_bins(stream.edges, monitored)
    counted = np.stack([times // 60 * 60, places], axis=1).astype(np.int64)
    cells, counts = np.unique(counted, axis=0, return_counts=True)
    stored = _Sample(
        times[0], [prediction.digest for prediction in read], [logits], logits.nbytes, times[-1]
    )
    with registry.blobs.writer() as blob:
        blob.write(_parquet(stored))
        digest = blob.commit()
    with registry.transaction() as tx:
        tx.labels.add(model, list(zip(read, truth.tolist(), strict=True)))
        stream._arrive(tx, delay, version)
        tx.traffic.add(
            TrafficCount(model.id, version, int(start), 0, int(bin), int(count))
            for (start, bin), count in zip(cells, counts, strict=True)
        )
        if save_logits:
            tx.captures.add(model.id, Capture(digest, rows, 99, times[0] - 1, times[-1] + 1))
