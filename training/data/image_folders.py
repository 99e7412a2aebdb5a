"""Images in folders of their classes, and in tar shards as WebDataset writes them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recalib.errors import InputError
from training.data.encoded import ImageRows

_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm",
    ".jp2",
)  # fmt: skip
#: Longest label of a shard, in bytes.
_MAX_LABEL_BYTES = 1000


class FolderImages(ImageRows):
    """Images in sub-folders with the names of their classes, as for torchvision's `ImageFolder`.

    Sub-folders of a class belong to it. Names that start with a dot, and files with other suffixes
    than those of images, are left out.

    Parameters
    ----------
    boundary: a folder that links must not leave; None for no such limit.
    """

    def __init__(self, folder: Path, field: str, boundary: Path | None) -> None:
        self._folder = folder
        classes = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
        by_class = {path.name: _images(path) for path in classes}
        empty = [name for name, images in by_class.items() if not images]
        if empty or len(by_class) < 2:
            found = f"{folder.name}: {f'no image in {empty[0]}' if empty else 'no sub-folders'}"
            accepted = "two or more sub-folders, each with the images of a class"
            raise InputError(field, found=found, accepted=accepted)
        self._paths = [path for images in by_class.values() for path in images]
        for path in self._paths:
            if boundary is not None and not path.resolve().is_relative_to(boundary.resolve()):
                found = f"a link to another folder: {path.relative_to(folder)}"
                raise InputError(field, found=found, accepted="files below the data folder")
        self.labels = np.repeat(list(by_class), [len(images) for images in by_class.values()])
        self.field = f"{folder.name}: class"

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, row: int) -> object:
        return self._paths[row].read_bytes()

    def describe(self, row: int) -> str:
        return str(self._paths[row].relative_to(self._folder.parent))


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES and path.name[0] != "." and path.is_file()
    )


class _Member(NamedTuple):
    shard: int
    name: str
    offset: int
    size: int


class ShardImages(ImageRows):
    """Images in uncompressed tar files: members of a sample have the same name up to the first dot.

    An image is a member with the suffix of an image, its label the member with the suffix `label`:
    a number or a name in text. The positions of the images stay in memory, and each image is read
    on access, so that rows are shuffled and split as of any other source.
    """

    def __init__(self, paths: Sequence[Path], label: str, field: str) -> None:
        self._paths = list(paths)
        self._members: list[_Member] = []
        labels: list[str] = []
        for number, path in enumerate(self._paths):
            try:
                samples = list(_samples(path, number, label))
            except (OSError, tarfile.TarError, ValueError, EOFError, OverflowError) as error:
                found = f"{path.name}: {error}"
                raise InputError(field, found=found, accepted="an uncompressed tar file") from error
            for image, text in samples:
                self._members.append(image)
                labels.append(text)
        if not labels:
            found, accepted = f"{paths[0].name}: no image", f"NAME.jpg, ..., and NAME.{label}"
            raise InputError(field, found=found, accepted=accepted)
        values = np.array(labels)
        is_number = np.char.isdecimal(values).all()
        self.labels = values.astype(np.int64) if is_number else values
        self.field = f"{paths[0].name}{' and others' if len(paths) > 1 else ''}: {label}"

    def __len__(self) -> int:
        return len(self._members)

    def read(self, row: int) -> object:
        member = self._members[row]
        with self._paths[member.shard].open("rb") as file:
            file.seek(member.offset)
            return file.read(member.size)

    def describe(self, row: int) -> str:
        member = self._members[row]
        return f"{self._paths[member.shard].name}: {member.name}"


def _samples(path: Path, shard: int, label: str) -> Iterator[tuple[_Member, str]]:
    """Yield the images and the labels of a shard, in the order of the file."""
    size = path.stat().st_size
    images: dict[str, _Member] = {}
    labels: dict[str, str] = {}
    with path.open("rb") as file, tarfile.open(path, "r:") as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            stem, _, suffix = name.partition(".")
            is_label = suffix == label
            if not member.isreg() or not (is_label or f".{suffix.lower()}".endswith(_SUFFIXES)):
                continue
            if member.issparse() or member.offset_data + member.size > size:
                raise ValueError(f"{member.name} is cut off")
            sample = f"{folder}/{stem}"
            if is_label:
                if member.size > _MAX_LABEL_BYTES:
                    raise ValueError(f"{member.name} has {member.size} bytes, instead of a label")
                file.seek(member.offset_data)
                labels[sample] = file.read(member.size).decode().strip()
            else:
                images[sample] = _Member(shard, member.name, member.offset_data, member.size)
    for sample, image in images.items():
        if not labels.get(sample):
            raise ValueError(f"no label for {image.name}")
        yield image, labels[sample]
