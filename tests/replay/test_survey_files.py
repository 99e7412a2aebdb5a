"""A log whose files are read and checked on workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recalib.core.executors import open_workers
from recalib.errors import InputError
from recalib.files.fragments import list_fragments
from recalib.replay import Log, ReplayOptions, replay
from recalib.replay.survey_files import survey_on_workers
from tests.replay.logs import write
from tests.replay.test_classes import log


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A log with probabilities, labels and segments in files of unequal length, in any order."""
    columns = log(2_000, swap=True)
    columns["segment"] = np.where(np.arange(2_000) < 1_200, "north", "south")
    for number, (start, end) in enumerate(((1_500, 2_000), (0, 700), (700, 1_500), (0, 0))):
        part = {name: values[start:end] for name, values in columns.items()}
        write(tmp_path / f"{number}.parquet", part, row_group_size=300)
    return tmp_path


@pytest.mark.parametrize(
    "cluster",
    [
        "threads:3",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("threads:1", "local:2")),
    ],
)
def test_result_does_not_depend_on_the_workers(parts: Path, cluster: str) -> None:
    options = ReplayOptions(classes=("all",), find_segments=("segment",))
    expected = replay(parts, options).to_dict()
    assert replay(parts, options, cluster=cluster).to_dict() == expected
    with Log(parts) as log, open_workers(cluster) as workers:
        surveys = log.survey(), survey_on_workers(log, workers)
    first, second = ({**vars(survey), "delays": survey.delays.tolist()} for survey in surveys)
    assert first == second


def test_fragments_are_complete_parquet_files(parts: Path) -> None:
    assert replay(list_fragments(parts)).to_dict() == replay(parts).to_dict()
    with pytest.raises(InputError, match="log: found parts of files"):
        replay(list_fragments(parts, max_bytes=1))
    with pytest.raises(InputError, match="log: found paths and fragments"):
        replay([*list_fragments(parts), parts / "0.parquet"])


def test_workers_open_the_absolute_path(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parts)
    with Log("0.parquet") as log:
        assert [file.location for file in log.files] == [str(parts / "0.parquet")]


def test_errors_of_workers_name_the_file(parts: Path) -> None:
    """They are those of one process."""
    columns = log(20, swap=False)
    bad = columns | {"time": np.where(np.arange(20) == 3, np.nan, columns["time"])}
    segments = [f"segment {number}" for number in range(20)]
    write(parts / "4.parquet", bad | {"segment": segments})
    messages = []
    for cluster in (None, "threads:2"):
        with pytest.raises(InputError, match=r"4\.parquet: time\[3\]: found null") as caught:
            replay(parts, cluster=cluster)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    wider = [np.append(row, 0.0) for row in columns["probabilities"]]
    write(parts / "4.parquet", columns | {"segment": segments, "probabilities": wider})
    with pytest.raises(InputError, match=r"4\.parquet: probabilities"):
        replay(parts, cluster="threads:2")


@pytest.mark.parametrize("cluster", [None, "threads:2"])
@pytest.mark.parametrize("step", ["reading", "cohort 2 of", "shares of classes"])
def test_file_that_is_replaced_during_a_replay_is_named(
    parts: Path, cluster: str | None, step: str
) -> None:
    """The first pass, on a cluster, and the later ones, here, would read different rows."""
    columns = log(700, swap=False) | {"segment": ["north"] * 700}

    def replace(text: str) -> None:
        if text.startswith(step):
            write(parts / "new", columns)
            (parts / "new").rename(parts / "1.parquet")

    with pytest.raises(InputError, match=r"log: found .*/1\.parquet, which has changed while"):
        replay(parts, cluster=cluster, progress=replace)


def test_cluster_needs_files_that_workers_open(parts: Path) -> None:
    with (
        (parts / "0.parquet").open("rb") as stream,
        pytest.raises(InputError, match="cluster: found an open file"),
    ):
        replay(stream, cluster="threads:2")
    single = parts / "1.parquet"
    assert replay(single, cluster="threads:2").to_dict() == replay(single).to_dict()
    pq.write_table(pq.read_table(single)[:0], single)
    with pytest.raises(InputError, match="log: found no rows"):
        replay(single, cluster="threads:2")
