"""`.npz`: a zip of `.npy` members, `logits` (N, K) and `labels` (N,), or others by name."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import BinaryIO, ClassVar

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.files.base import Layout, Numbers
from recalib.files.npy import check_length, read_header
from recalib.files.raw_arrays import (
    CHUNK_BYTES,
    ArrayFile,
    RawArray,
    Readable,
    read_rows,
    size_of,
)

_SUFFIX = ".npy"
#: Deflate encodes at most 258 bytes in 2 bits: a member that claims to unpack to more than 1,032
#: times its size is damaged.
_MAX_DEFLATE_RATIO = 1032


class NpzFile(ArrayFile):
    """A NumPy archive, stored or deflated. Members are streamed; other members are ignored."""

    name: ClassVar[str] = "npz"
    media_types: ClassVar[tuple[str, ...]] = ("application/x-npz",)
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    def _open(self) -> Layout:
        self._zip = zipfile.ZipFile(_SmallReads(self._stream))
        return super()._open()

    def _names(self) -> list[str]:
        names = (info.filename for info in self._zip.infolist())
        return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]

    def _array(self, name: str, field: str) -> RawArray:
        info = self._zip.getinfo(f"{name}{_SUFFIX}")
        _check_member(info, size_of(self._stream), field)
        with self._zip.open(info) as member:
            array, header = read_header(member, field)
        check_length(array, info.file_size - header, field)
        return array

    def _rows(self, name: str, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
        with self._zip.open(f"{name}{_SUFFIX}") as member:
            read_header(member, field)
            yield from read_rows(member, array, step, field)
            _check_finished(member, field)


class _SmallReads:
    """A stream that refuses large reads.

    zipfile reads the archive's directory in one call, of the size that the file claims, and builds
    objects of ten times that size. A directory of 1 MiB lists about 16,000 members.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(CHUNK_BYTES + 1 if size < 0 else min(size, CHUNK_BYTES + 1))
        if len(data) > CHUNK_BYTES:
            raise TooLargeError(
                "data", found="a zip directory over 1 MiB", accepted="an npz of a few arrays"
            )
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True


def _check_member(info: zipfile.ZipInfo, archive_size: int, field: str) -> None:
    if info.flag_bits & 0x1:
        raise UnsupportedError(field, found="an encrypted member", accepted="no encryption")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnsupportedError(
            field,
            found=f"zip compression method {info.compress_type}",
            accepted="stored or deflated (numpy.savez, numpy.savez_compressed)",
        )
    ratio = 1 if info.compress_type == zipfile.ZIP_STORED else _MAX_DEFLATE_RATIO
    if info.file_size > ratio * info.compress_size or info.compress_size > archive_size:
        raise InputError(
            field,
            found=f"{info.compress_size} bytes that claim to unpack to {info.file_size}",
            accepted="a complete, undamaged npz file",
        )


def _check_finished(member: Readable, field: str) -> None:
    # zipfile compares the checksum when it reads past the end.
    if member.read(1):
        raise InputError(field, found="more bytes than declared", accepted="an undamaged file")
