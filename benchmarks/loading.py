"""`python -m benchmarks.loading`: milliseconds that loading a batch of 128 images takes.

First images of 32x32 in memory, with each augmentation, in the processor time of one thread. Then
JPEG images of 256x256 that are decoded when they are used and scaled to 128x128: wall time of a
batch, by the number of workers. A training step that takes longer than that does not wait.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image

from benchmarks.timing import interleaved
from training.data import AUGMENTATIONS, Split, augmentation
from training.data.encoded import EncodedImages, ImageRows
from training.data.pixels import Pixels
from training.engine.loading import BatchLoader, Share

_BATCH = 128


class _Jpegs(ImageRows):
    """Smooth random images, which JPEG encodes as well as photographs."""

    def __init__(self, count: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._images = []
        for small in rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8):
            buffer = io.BytesIO()
            Image.fromarray(small).resize((256, 256)).save(buffer, "JPEG", quality=90)
            self._images.append(buffer.getvalue())

    def __len__(self) -> int:
        return len(self._images)

    def read(self, row: int) -> object:
        return self._images[row]

    def describe(self, row: int) -> str:
        return f"image {row}"


def measure_augmentations(times: int = 20) -> Iterator[tuple[str, float]]:
    """Yield each augmentation, and the milliseconds of processor time of a batch."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pixels = Pixels(rng.integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8))
    split = Split.with_all_rows(pixels.scaled(pixels.measured()), rng.integers(0, 10, 10_000))
    fabric = Fabric(accelerator="cpu", devices=1)
    for name in AUGMENTATIONS:
        shares = [Share(rng.permutation(10_000)[:_BATCH], seed) for seed in range(times)]
        batches = BatchLoader(fabric, {"train": split}, augmentation(name)).load("train", shares)
        seconds = interleaved(
            {name: lambda batches=batches: next(batches)}, times, time.thread_time
        )
        yield name, 1e3 * min(seconds[name])


def measure_workers(
    counts: tuple[int, ...] = (0, 1, 2), batches: int = 12
) -> Iterator[tuple[int, float]]:
    """Yield numbers of workers, and the milliseconds of a batch; starting them is not counted."""
    rng = np.random.default_rng(0)
    images = EncodedImages(_Jpegs(4 * _BATCH), size=128)
    split = Split.with_all_rows(images, rng.integers(0, 10, len(images)))
    fabric = Fabric(accelerator="cpu", devices=1)
    shares = [Share(rng.permutation(len(images))[:_BATCH], seed) for seed in range(batches)]
    for workers in counts:
        augment = augmentation("crop_flip")
        with BatchLoader(fabric, {"train": split}, augment, workers=workers) as loader:
            loaded = loader.load("train", shares)
            next(loaded)
            started = time.perf_counter()
            count = sum(1 for _ in loaded)
            yield workers, 1e3 * (time.perf_counter() - started) / count


def main() -> None:
    for name, milliseconds in measure_augmentations():
        print(f"in memory, 32x32, augmentation {name}: {milliseconds:.2f} ms")
    for workers, milliseconds in measure_workers():
        print(f"JPEG, 256x256 to 128x128, {workers} workers: {milliseconds:.0f} ms")


if __name__ == "__main__":
    main()
