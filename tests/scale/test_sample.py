"""The sample of the first pass: bounded memory, evenly spaced rows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalib.core.executors import open_workers
from recalib.files.fragments import list_fragments
from recalib.scale import row_sample
from recalib.scale import rows as scale_rows
from recalib.scale.rows import FragmentRows, RowSurvey


def _survey(folder: Path, cluster: str | None = None) -> RowSurvey:
    with open_workers(cluster) as workers:
        return FragmentRows(workers, list_fragments(folder), "logits").survey()


def test_survey_releases_the_chunks_of_a_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk_bytes = 1 << 20

    def chunks(file: Any, max_bytes: int) -> Any:
        rows = chunk_bytes // 8
        for _ in range(20):
            yield np.zeros((rows, 2), np.float32), np.zeros(rows, np.int64), None

    np.savez(tmp_path / "a.npz", logits=np.zeros((2, 2), np.float32), labels=np.zeros(2, int))
    monkeypatch.setattr(scale_rows, "labelled_chunks", chunks)
    tracemalloc.start()
    try:
        survey = _survey(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert survey.rows == 20 * chunk_bytes // 8
    assert peak < 16 * chunk_bytes  # all chunks: 40, with their labels


@pytest.mark.parametrize("lengths", [(4_000, 37, 900, 1, 1, 1, 2_061), (90, 9, 1), (1_000,)])
def test_sample_is_evenly_spaced_over_files_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)
    total = sum(lengths)
    numbers = np.split(np.arange(total), np.cumsum(lengths)[:-1])
    for index, of_file in enumerate(numbers):
        logits = np.column_stack([of_file, np.zeros(len(of_file))])
        np.savez(tmp_path / f"{index}.npz", logits=logits, labels=np.zeros(len(of_file), int))
    sample = _survey(tmp_path).logits[:, 0]
    assert np.array_equal(sample, _survey(tmp_path, "threads:3").logits[:, 0])
    assert 0.25 * min(total, 300) <= len(sample) <= 300
    gaps = np.diff(sample)
    assert sample[0] == 0
    assert gaps.min() >= 1
    assert gaps.max() <= 4 * gaps.min()


def test_large_file_among_small_ones_gives_nearly_the_whole_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)
    lengths = [1] * 20 + [9_000] + [1] * 20
    numbers = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    for index, of_file in enumerate(numbers):
        logits = np.column_stack([of_file, np.zeros(len(of_file))])
        labels = np.zeros(len(of_file), int)
        np.savez(tmp_path / f"{index:02d}.npz", logits=logits, labels=labels)
    sample = _survey(tmp_path).logits[:, 0]
    assert 250 <= len(sample) <= 300
    gaps = np.diff(sample)
    assert gaps.max() <= 2 * gaps.min()
