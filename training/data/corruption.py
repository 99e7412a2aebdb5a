"""Image corruptions at five severities, to measure calibration under distribution shift.

Paper 000 measures calibration under shift on CIFAR-10-C: 19 corruptions of the test images, each at
five severities, and reports the mean over corruptions for each severity. This module implements
nine of the corruptions with the constants of CIFAR-10-C. They are written here because the packages
that have them require old NumPy or torchvision, and the published arrays are 2.7 GB.

Frost, snow, fog and spatter are missing, because they need pictures of frost or a random field.
Glass, motion and zoom blur and elastic transforms are missing too.

Source: Hendrycks and Dietterich, Benchmarking neural network robustness to common corruptions and
perturbations, ICLR 2019, section 3 and its code for CIFAR.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from recalib.errors import InputError
from training.data.pixels import Pixels, StoredImages
from training.data.split import Split

SEVERITIES = (1, 2, 3, 4, 5)
#: Images (N, H, W, 3) in [0, 1].
Images = NDArray[np.float64]
_CHUNK = 1000


def gaussian_noise(images: Images, severity: int, rng: Generator) -> Images:
    """Add normal noise to every value."""
    scale = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + scale * rng.standard_normal(images.shape)


def shot_noise(images: Images, severity: int, rng: Generator) -> Images:
    """Replace values by Poisson counts of photons; fewer photons mean stronger noise."""
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return rng.poisson(images * photons) / photons


def impulse_noise(images: Images, severity: int, rng: Generator) -> Images:
    """Set some values to 0 and as many to 1 (salt and pepper), independently for each channel."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    hit = rng.random(images.shape)
    return np.where(hit < share / 2, 0.0, np.where(hit < share, 1.0, images))


def gaussian_blur(images: Images, severity: int, rng: Generator) -> Images:
    """Blur with a normal density; edges are repeated."""
    width = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    return ndimage.gaussian_filter(images, (0, width, width, 0), mode="nearest")


def brightness(images: Images, severity: int, rng: Generator) -> Images:
    """Raise the HSV value, the largest channel, and the other channels in proportion.

    Black becomes grey.
    """
    amount = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = images.max(axis=3, keepdims=True)
    raised = np.minimum(value + amount, 1.0)
    factor = raised / np.where(value > 0, value, 1.0)
    return np.where(value > 0, images * factor, raised)


def contrast(images: Images, severity: int, rng: Generator) -> Images:
    """Shrink each channel towards its mean over the image."""
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = images.mean(axis=(1, 2), keepdims=True)
    return (images - mean) * factor + mean


def saturate(images: Images, severity: int, rng: Generator) -> Images:
    """Scale and raise the HSV saturation, the distance of channels from the largest."""
    factor, offset = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    value = images.max(axis=3, keepdims=True)
    spread = value - images.min(axis=3, keepdims=True)
    before = np.where(value > 0, spread / np.where(value > 0, value, 1.0), 0.0)
    after = np.clip(before * factor + offset, 0.0, 1.0)
    # A colourless pixel has HSV hue 0, which is red: the other two channels decrease.
    colourless = before == 0
    scale = np.where(colourless, 0.0, after / np.where(colourless, 1.0, before))
    coloured = value - (value - images) * scale
    red = np.concatenate([value, value * (1 - after), value * (1 - after)], axis=3)
    return np.where(colourless, red, coloured)


def pixelate(images: Images, severity: int, rng: Generator) -> Images:
    """Downscale images and scale them up again, by area averages."""
    from PIL import Image

    share = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = images.shape[1:3]
    small = (max(1, int(width * share)), max(1, int(height * share)))

    def change(image: Image.Image) -> Image.Image:
        box = Image.Resampling.BOX
        return image.resize(small, box).resize((width, height), box)

    return _by_pillow(images, change)


def jpeg(images: Images, severity: int, rng: Generator) -> Images:
    """Compress as JPEG of low quality."""
    from PIL import Image

    quality = (80, 65, 58, 50, 40)[severity - 1]

    def change(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer).convert("RGB")

    return _by_pillow(images, change)


CORRUPTIONS: dict[str, Callable[[Images, int, Generator], Images]] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "gaussian_blur": gaussian_blur,
    "brightness": brightness,
    "contrast": contrast,
    "saturate": saturate,
    "pixelate": pixelate,
    "jpeg": jpeg,
}


def corrupt(
    images_nhwc: NDArray[np.uint8], name: str, severity: int, seed: int = 0
) -> NDArray[np.uint8]:
    """Return corrupted images as bytes (N, H, W, 3); fractions are truncated.

    Randomness depends on `seed`, the corruption and the positions of the images. The normal noise
    and the random numbers of salt and pepper are the same at every severity, so that severities
    differ only in strength.

    Raises
    ------
    InputError: an unknown corruption or severity, or an array other than bytes (N, H, W, 3).
    """
    act = CORRUPTIONS.get(name)
    if act is None:
        raise InputError("corruption", found=repr(name), accepted=", ".join(CORRUPTIONS))
    if severity not in SEVERITIES:
        raise InputError("severity", found=f"{severity}", accepted="1 to 5")
    if images_nhwc.dtype != np.uint8 or images_nhwc.ndim != 4 or images_nhwc.shape[3] != 3:
        found = f"{images_nhwc.dtype} {images_nhwc.shape}"
        raise InputError("images", found=found, accepted="uint8 (N, H, W, 3)")
    answer = np.empty_like(images_nhwc)
    for first in range(0, len(images_nhwc), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        rng = np.random.default_rng([seed, list(CORRUPTIONS).index(name), first])
        changed = act(images_nhwc[chunk] / 255.0, severity, rng)
        # The small offset keeps unchanged values unchanged after truncation.
        answer[chunk] = np.clip(changed * 255 + 1e-6, 0, 255).astype(np.uint8)
    return answer


def corrupted(split: Split, name: str, severity: int, seed: int = 0) -> Split:
    """Return the split with corrupted images and the same scale.

    Raises
    ------
    InputError: as `corrupt`, or a split without images.
    """
    if not isinstance(split.inputs, StoredImages):
        found = type(split.inputs).__name__
        raise InputError("split", found=found, accepted="images")
    pixels = corrupt(split.inputs.pixels(split.rows), name, severity, seed)
    return Split.with_all_rows(Pixels(pixels, split.inputs.scale), split.labels)


def _by_pillow(images: Images, change: Callable[..., object]) -> Images:
    from PIL import Image

    plain = (images * 255).round().astype(np.uint8)
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in plain]) / 255.0
