"""Roots of data sets by reference: what a URI may name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.references import DatasetRoots, list_referenced, listing

_ROOTS = DatasetRoots("file:///data/val s3://bucket/logits/ s3://shared/{model}/ gs://other")


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("file:///data/val", "file:///data/val"),
        ("file:///data/val/day=*/**/*.parquet", "file:///data/val"),
        ("s3://bucket/logits/a.npz", "s3://bucket/logits/"),
        ("s3://shared/resnet/a.npz", "s3://shared/resnet/"),
        ("gs://other/any/file [1].npz", "gs://other"),
    ],
)
def test_uri_within_a_root_is_accepted(uri: str, root: str) -> None:
    assert _ROOTS.root_of(uri, "resnet") == root


@pytest.mark.parametrize(
    "uri",
    [
        "file:///data",
        "file:///data/validation/a.npz",
        "file:///data/*/a.npz",
        "file:///etc/passwd",
        "s3://bucket/a.npz",
        "s3://shared/vit/a.npz",
        "s3://shared/{model}/a.npz",
        "gs://bucket/logits/a.npz",
    ],
)
def test_uri_outside_of_the_roots_is_refused(uri: str) -> None:
    with pytest.raises(InputError, match=r"uri: found .*RECALIB_DATASET_ROOTS"):
        _ROOTS.root_of(uri, "resnet")


@pytest.mark.parametrize(
    "uri",
    [
        "/data/val/a.npz",
        "file://data/val/a.npz",
        "file://localhost/data/val/a.npz",
        "file:////data/val/a.npz",
        "file:///data/val/../../etc/passwd",
        "file:///data/val/./a.npz",
        "file:///data/val//a.npz",
        "file:///data/val/a\n.npz",
        "file:///data/val/a\\..\\b.npz",
        "s3://bucket/logits/../secrets/a.npz",
        "s3://bucket/logits/a.npz?endpoint_override=http://169.254.169.254",
        "s3://bucket/logits/a.npz?versionId=1",
        "s3://bucket/logits/a.npz#fragment",
        "s3://key:secret@bucket/logits/a.npz",
        "s3://bucket:9000/logits/a.npz",
        "s3://169.254.169.254/latest/meta-data",
        "s3://[fd00:ec2::254]/latest",
        "s3:///logits/a.npz",
        "s3://buck*/logits/a.npz",
        "simplecache::s3://bucket/logits/a.npz",
        "s3://bucket/logits/a.zip::http://169.254.169.254/",
        "http://169.254.169.254/latest/meta-data/",
        "https://example.com/a.npz",
        "ftp://bucket/logits/a.npz",
        "memory://data/val",
        "S3://bucket/logits/a.npz",
        "s3://bucket/logits/" + 2000 * "a",
        "",
    ],
)
def test_unusual_uri_is_refused_before_anything_is_read(uri: str) -> None:
    with pytest.raises(InputError, match="uri: found"):
        _ROOTS.root_of(uri, "resnet")
    if uri:
        with pytest.raises(InputError, match="RECALIB_DATASET_ROOTS: found"):
            DatasetRoots(f"file:///data {uri}")


def test_no_root_refuses_every_uri() -> None:
    with pytest.raises(InputError, match=r"accepted: no URI \(setting RECALIB_DATASET_ROOTS\)"):
        DatasetRoots("").root_of("file:///data/val/a.npz", "resnet")


@pytest.mark.parametrize("root", ["s3://{model}/a", "s3://bucket/*", "file:///data/[ab]"])
def test_root_is_one_place(root: str) -> None:
    with pytest.raises(InputError, match="RECALIB_DATASET_ROOTS: found"):
        DatasetRoots(root)


def test_link_that_leaves_the_root_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.npz").write_bytes(b"content")
    root = inside.as_uri()
    (inside / "first.npz").symlink_to("a.npz")
    for uri in (f"{root}/first.npz", f"{root}/f*.npz"):
        files = list_referenced(uri, root)
        assert [(file.location, file.size) for file in files] == [(f"{root}/first.npz", 7)]
    with pytest.raises(InputError, match="which are the same file"):
        list_referenced(root, root)
    (inside / "first.npz").unlink()
    (inside / "link.npz").symlink_to(outside / "a.npz")
    with pytest.raises(InputError, match=r"link\.npz, a link to another place"):
        list_referenced(root, root)
    (inside / "link.npz").unlink()
    (inside / "folder").symlink_to(outside)
    (outside / "secret.npz").mkdir()
    for path in ("folder/a.npz", "folder", "folder/*.npz", "folder/none.npz"):
        with pytest.raises(InputError, match="a link to another place") as caught:
            list_referenced(f"{root}/{path}", root)
        # No name of the other folder.
        assert caught.value.found.startswith(f"{root}/{path.removesuffix('/*.npz')}, a link")


def test_name_of_a_chained_url_is_refused(tmp_path: Path) -> None:
    """fsspec opens the last part of `x::/outside/a.npz`."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.npz").write_bytes(b"secret")
    (inside / "x").symlink_to(outside)
    (inside / "x::a.npz").write_bytes(b"content")
    root = inside.as_uri()
    for uri in (root, f"{root}/*.npz"):
        with pytest.raises(InputError, match=r"uri: found .*x::a\.npz'; accepted: names"):
            list_referenced(uri, root)


def test_errors_name_the_field_of_the_request(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    for path in ("none.npz", "*.npz", ""):
        with pytest.raises(InputError) as caught:
            list_referenced(f"{root}/{path}", root)
        assert caught.value.field == "uri"


def test_missing_driver_is_an_error_with_the_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UnsupportedError, match=r"uri: found .*accepted: file:///PATH, s3://"):
        list_referenced("gs://bucket/a.npz", "gs://bucket")


def test_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.npz").write_bytes(b"content")
    (tmp_path / "root").symlink_to("real")
    root = (tmp_path / "root").as_uri()
    assert [file.size for file in list_referenced(root, root)] == [7]


def test_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(InputError, match="no regular file"):
        list_referenced((tmp_path / "a.npz").as_uri(), tmp_path.as_uri())


def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.npz").write_bytes(b"content")
    with pytest.raises(TooLargeError, match="more than 2 files"):
        list_referenced(tmp_path.as_uri(), tmp_path.as_uri())
