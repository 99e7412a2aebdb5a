"""Encoded images in tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from recalib.core.options import check_option
from recalib.errors import InputError
from training.data.base import Files, Parts, Source
from training.data.classes import Rows, check_classes, parts_of
from training.data.encoded import EncodedImages, ImageRows
from training.data.pixels import Normalisation, Scale, scale_of
from training.data.tables import TableImages

#: Largest height and width for scaling, because a request may name any number.
_MAX_SIZE = 4096
_TABLES = (".parquet", ".pq", ".arrow", ".arrows", ".feather")


@dataclass
class Images(Source):
    """Encoded RGB images (JPEG, PNG, ...).

    Models receive float32 (N, 3, H, W), by default each channel minus its mean over the training
    images, divided by its standard deviation. If the decoded images of a split fit into `memory`
    bytes, they are decoded once and kept in memory. Otherwise each batch is decoded when it is
    used.

    Options: `train` and optionally `test` and `validation`: a Parquet or Arrow file, a folder of
    such files, or a pattern of their names. `image` and `label`, the names of the columns, by
    default these. `size`, height and width for bilinear scaling, by default none: then all images
    must have the same size. `normalise`, see `training.data.pixels`. `classes`, the number of
    classes or their names in order, by default from the files.
    """

    train: str
    test: str | None = None
    validation: str | None = None
    image: str = "image"
    label: str = "label"
    size: int | None = None
    normalise: Normalisation = "standardise"
    classes: int | list[str] | None = None
    memory: int = 2**31

    def __post_init__(self) -> None:
        check_classes(self.classes)
        if self.size is not None:
            check_option("size", self.size, 1 <= self.size <= _MAX_SIZE, f"1 to {_MAX_SIZE}")
        check_option("memory", self.memory, self.memory >= 0, "0 or more")

    def read(self, files: Files) -> Parts:
        images = self.of_splits(partial(self._open, files))
        rows = image_rows(images, self.size, self.normalise, self.memory)
        return parts_of(rows, {"channels": 3}, self.classes, images["train"].names)

    def _open(self, files: Files, name: str) -> ImageRows:
        option, field = getattr(self, name), f"data.options.{name}"
        paths = files.paths(option, name)
        if paths[0].is_dir():
            paths = sorted(path for path in paths[0].iterdir() if path.suffix in _TABLES)
        if not paths or paths[0].suffix == ".tar":
            accepted = (
                "Parquet or Arrow files; folders of classes by data.source = 'dataset' and its "
                "factory torchvision.datasets:ImageFolder"
            )
            raise InputError(field, found=f"{option}, without tables", accepted=accepted)
        return TableImages(paths, self.image, self.label, field)


def image_rows(
    images: Mapping[str, ImageRows], size: int | None, normalise: Normalisation, memory: int
) -> dict[str, Rows]:
    """Return the rows of splits of images; the options are those of `Images`.

    Every image is decoded once, so that an invalid one is found before training.
    """
    rows: dict[str, Rows] = {}
    shape: tuple[int, int] | None = None
    scale: Scale | None = None
    for name, encoded in images.items():
        inputs = EncodedImages(encoded, size, shape)
        shape = (inputs.height, inputs.width)
        stored = inputs.decode_all() if inputs.decoded_bytes <= memory else inputs
        is_measured = scale is None and normalise == "standardise"
        if stored is inputs and not is_measured:
            inputs.check()
        scale = scale or scale_of(normalise, stored)
        rows[name] = Rows(stored.scaled(scale), encoded.labels, encoded.field)
    return rows
