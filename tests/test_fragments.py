"""Data in several files: what a source stands for, and its fragments."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib.errors import InputError, UnsupportedError
from recalib.files.fragments import Fragment, Source, is_single_file, list_fragments

_ROWS, _CLASSES = 300, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of Hive with a Parquet file of ten row groups, an .npz file and markers."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(_ROWS, _CLASSES)).astype(np.float32)
    labels = rng.integers(0, _CLASSES, _ROWS)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), _CLASSES)
    for name in ("day=1", "day=2", "_temporary"):
        (folder / name).mkdir()
    table = pa.table({"logits": lists, "labels": labels})
    pq.write_table(table, folder / "day=1" / "a.parquet", row_group_size=_ROWS // 10)
    pq.write_table(table, folder / "_temporary" / "c.parquet")
    np.savez(folder / "day=2" / "b.npz", logits=logits, labels=labels)
    (folder / "_SUCCESS").write_text("")
    (folder / "day=1" / ".a.parquet.crc").write_text("")
    return folder


def _rows(fragments: list[Fragment]) -> int:
    total = 0
    for fragment in fragments:
        with fragment.open() as file:
            total += sum(len(chunk.logits) for chunk in file.chunks())
    return total


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.parquet", "b.npz"]),
        ("day=*", ["a.parquet", "b.npz"]),
        ("*/*.npz", ["b.npz"]),
        ("**/*.parquet", ["a.parquet"]),
        ("day=1/a.parquet", ["a.parquet"]),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_folder_glob_and_url_stand_for_their_files(
    folder: Path, pattern: str, names: list[str], scheme: str
) -> None:
    fragments = list_fragments(f"{scheme}{folder}/{pattern}")
    assert [fragment.location.rpartition("/")[2] for fragment in fragments] == names
    assert all(fragment.location.startswith(scheme or "/") for fragment in fragments)
    assert _rows(fragments) == _ROWS * len(names)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_file_in_two_sources_is_refused(folder: Path, scheme: str) -> None:
    """Its rows would count twice."""
    again = f"{scheme}{folder}/day=2/b.npz"
    with pytest.raises(InputError, match=r"data: found .*b\.npz twice; accepted: each file once"):
        list_fragments([str(folder), again])


def test_link_stands_for_its_file(folder: Path) -> None:
    link = folder / "link.npz"
    link.symlink_to("day=2/b.npz")
    for pattern in ("link.npz", "l*.npz"):
        fragments = list_fragments(str(folder / pattern))
        assert [fragment.location for fragment in fragments] == [str(link)]
    with pytest.raises(InputError, match=r"b\.npz twice"):
        list_fragments(str(folder))


def test_list_keeps_its_order(folder: Path) -> None:
    files = [folder / "day=2" / "b.npz", str(folder / "day=1")]
    assert [Path(f.location).name for f in list_fragments(files)] == ["b.npz", "a.parquet"]


def test_large_parquet_file_is_divided_at_row_groups(folder: Path) -> None:
    path = folder / "day=1" / "a.parquet"
    fragments = list_fragments(path, max_bytes=path.stat().st_size // 3)
    assert 3 <= len(fragments) < 10
    groups = [fragment.row_groups for fragment in fragments]
    assert [g and g[0] for g in groups[1:]] == [g and g[1] for g in groups[:-1]]
    assert _rows(fragments) == _ROWS
    with fragments[1].open() as part, fragments[0].open() as first:
        assert part.rows
        row = sum(len(chunk.logits) for chunk in first.chunks())
        chunk = next(part.chunks())
    with list_fragments(path)[0].open() as single:
        expected = next(single.chunks()).logits[row : row + len(chunk.logits)]
    assert np.array_equal(chunk.logits, expected)


def test_row_groups_without_rows_join_others(folder: Path, tmp_path: Path) -> None:
    table = pq.read_table(folder / "day=1" / "a.parquet")
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table[:0], table[:200], table[:0], table[200:], table[:0]):
            writer.write_table(part)
    fragments = list_fragments(path, max_bytes=1_000)
    assert [fragment.row_groups for fragment in fragments] == [(0, 3), (3, 5)]
    assert _rows(fragments) == _ROWS


def test_row_groups_outside_the_file_are_rejected(folder: Path) -> None:
    fragment = Fragment(str(folder / "day=1" / "a.parquet"), "parquet", (5, 11))
    with pytest.raises(InputError, match="paths and fragments"):
        list_fragments([fragment, str(folder)])
    with pytest.raises(InputError, match="accepted: 0 to 10, the number of row groups"):
        fragment.open().__enter__()


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("{}/missing.npz", InputError, "No such file"),
        ("{}/*.csv", InputError, "nothing at"),
        ("{}/_SUCCESS", UnsupportedError, "ends in ''"),
        ("nothing://x", UnsupportedError, "Protocol not known"),
        ([], InputError, "at least one"),
    ],
)
def test_source_without_data_is_rejected(
    folder: Path, source: Source, error: type[Exception], message: str
) -> None:
    if isinstance(source, str):
        source = source.format(folder)
    with pytest.raises(error, match=message):
        list_fragments(source)


def test_error_names_the_fragment(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, logits=np.full((3, 2), np.nan), labels=np.zeros(3, int))
    with (
        pytest.raises(InputError, match=r"bad\.npz: logits\[0\]\[0\]: found NaN"),
        list_fragments(path)[0].open() as file,
    ):
        list(file.chunks())


def test_single_file(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a[1].npz"  # a file, not a pattern
    odd.write_bytes((folder / "day=2" / "b.npz").read_bytes())
    assert is_single_file(odd)
    assert is_single_file([os.fspath(odd)])
    assert is_single_file("missing.npz")
    assert _rows(list_fragments(odd)) == _ROWS
    for source in (folder, f"{folder}/*", odd.as_uri(), [odd, odd]):
        assert not is_single_file(source)
