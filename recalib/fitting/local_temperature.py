"""Local temperature scaling: a temperature for each pixel, by a small convolutional network.

It needs torch, which `recalib[fit]` installs.

Legend: N images, K classes, C channels of an image, H height, W width; z logits, T temperature.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from recalib.decoding import decoder_of
from recalib.errors import CorruptError, InputError
from recalib.files import write_atomically
from recalib.fitting.fit import fit
from recalib.inputs import as_array
from recalib.options import check_option

__all__ = ["LocalTemperature", "LocalTemperatureCard", "fit_local_temperature"]

#: T is between e⁻³ and e³ times the single temperature, so that it is finite for any weights.
_MAX_LOG_RATIO = 3.0
#: Pixels that determine the single temperature.
_MAX_PIXELS = 1_000_000
_MAX_FILE_BYTES = 2**26
_MAX_WIDTH, _MAX_KERNEL = 256, 31
#: Standard errors by which local temperatures have to be better, as a map of `auto`.
_STANDARD_ERRORS = 2.0
#: Errors for weights or a card that do not make a calibrator.
_BAD_VALUES = (InputError, KeyError, ValueError, RuntimeError)


class LocalTemperatureCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a fit."""

    classes: int
    #: Channels of the images that the network sees; 0 for logits alone.
    channels: int
    width: int
    kernel: int
    #: The single temperature of the images that were fitted, from which the fit starts; of all
    #: images, if local temperatures are not used.
    temperature: float
    #: Images that were fitted and held out.
    images: int
    held_out: int
    library: str
    created_at: str
    #: Mean NLL of the pixels that were held out, with the single temperature of the others and in
    #: the best epoch.
    nll_single: float = 0.0
    nll_local: float = 0.0
    #: Standard error of their difference over images; None for one image.
    standard_error: float | None = None
    #: Epochs of the fit, and the best; 0 is the single temperature.
    epochs: int = 0
    best_epoch: int = 0
    #: Whether the local temperatures are used, or the single one.
    is_local: bool = True
    method: str = "local_temperature"


class LocalTemperature(nn.Module):
    """Local temperature scaling: softmax(z_i / T_i), with a temperature for each pixel i.

    T_i = T · exp(3 tanh(f_i / 3)), where T is a single temperature and f is a network of three
    convolutions. It sees the probabilities with the single temperature, their entropy, and the
    logarithm of 1 + the gap of the two largest logits; and the image, if it was fitted with images.
    The order of the classes does not change: predictions and IoU stay. The result does not depend
    on a constant that is added to all logits of a pixel.

    Source: Ding et al., Local temperature scaling for probability calibration, ICCV 2021, whose
    network is a tree of convolutions of logits and image. This one is smaller.

    Examples
    --------
    >>> calibrator = fit_local_temperature(logits, labels, ignore_index=255)  # doctest: +SKIP
    >>> probabilities = calibrator(torch.tensor(new_logits))  # (N, K, H, W)  # doctest: +SKIP
    >>> calibrator.save("local.safetensors")  # doctest: +SKIP
    """

    def __init__(self, card: LocalTemperatureCard) -> None:
        super().__init__()
        self.card = card
        padding = card.kernel // 2
        self.body = nn.Sequential(
            nn.Conv2d(card.classes + 2 + card.channels, card.width, card.kernel, padding=padding),
            nn.ReLU(),
            nn.Conv2d(card.width, card.width, card.kernel, padding=padding),
            nn.ReLU(),
        )
        self.head = nn.Conv2d(card.width, 1, 1)
        # Zero weights are the single temperature.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, logits: Tensor, images: Tensor | None = None) -> Tensor:
        """Return probabilities (N, K, H, W).

        Parameters
        ----------
        logits: (N, K, H, W), finite.
        images: (N, C, H, W), if the calibrator was fitted with images.

        Raises
        ------
        InputError: other shapes, or images where there were none.
        """
        return (logits / self.temperatures(logits, images)).softmax(dim=1)

    def log_probabilities(self, logits: Tensor, images: Tensor | None = None) -> Tensor:
        """Return log p, (N, K, H, W)."""
        return (logits / self.temperatures(logits, images)).log_softmax(dim=1)

    def temperatures(self, logits: Tensor, images: Tensor | None = None) -> Tensor:
        """Return the temperature of each pixel, (N, 1, H, W)."""
        self._check(logits, images)
        scaled = logits / self.card.temperature
        log_p = scaled.log_softmax(dim=1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(dim=1, keepdim=True) / math.log(self.card.classes)
        top = scaled.topk(2, dim=1).values
        gap = torch.log1p(top[:, :1] - top[:, 1:])
        parts = [p, entropy, gap] if images is None else [p, entropy, gap, images]
        ratio = self.head(self.body(torch.cat(parts, dim=1)))
        ratio = _MAX_LOG_RATIO * torch.tanh(ratio / _MAX_LOG_RATIO)
        temperatures: Tensor = self.card.temperature * ratio.exp()
        return temperatures

    def _check(self, logits: Tensor, images: Tensor | None) -> None:
        card = self.card
        if logits.ndim != 4 or logits.shape[1] != card.classes:
            accepted = f"(N, {card.classes}, H, W)"
            raise InputError("logits", found=f"shape {tuple(logits.shape)}", accepted=accepted)
        shape = None if images is None else tuple(images.shape)
        expected = (len(logits), card.channels, *logits.shape[2:]) if card.channels else None
        if shape != expected:
            raise InputError("images", found=f"shape {shape}", accepted=f"shape {expected}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights and card as safetensors, atomically."""
        state = {name: value.cpu().contiguous() for name, value in self.state_dict().items()}
        metadata = {"card": msgspec.json.encode(self.card).decode()}
        write_atomically(Path(path), safetensors.torch.save(state, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LocalTemperature:
        """Return the calibrator in a file of `save`.

        Raises
        ------
        InputError: the file cannot be read.
        CorruptError: it is damaged, or another file.
        """
        try:
            if Path(path).stat().st_size > _MAX_FILE_BYTES:
                raise CorruptError(f"{path} has more than {_MAX_FILE_BYTES} bytes")
            with safetensors.safe_open(os.fspath(path), "pt") as file:
                text = (file.metadata() or {})["card"]
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            card = decoder_of(LocalTemperatureCard).decode(text)
            _check_options(0.5, card.width, card.kernel, 0, 1)
            if not 0 < card.temperature < math.inf:
                raise ValueError(f"temperature {card.temperature}")
            with torch.device("meta"):  # sizes in a hostile card allocate nothing
                calibrator = cls(card)
            calibrator.load_state_dict(state, assign=True)
        except OSError as error:
            found = f"{path} ({error.strerror or error})"
            raise InputError("path", found=found, accepted="a readable file") from None
        except (safetensors.SafetensorError, msgspec.DecodeError, *_BAD_VALUES) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorruptError(f"not a local temperature: {reason}") from None
        return calibrator.eval()


def fit_local_temperature(
    logits: NDArray[Any] | Tensor,
    labels: NDArray[Any] | Tensor,
    images: NDArray[Any] | Tensor | None = None,
    *,
    ignore_index: int | None = None,
    held_out: float = 0.2,
    width: int = 16,
    kernel: int = 5,
    epochs: int = 50,
    patience: int = 5,
    learning_rate: float = 0.005,
    batch_size: int = 8,
    seed: int = 0,
    device: str = "cpu",
) -> LocalTemperature:
    """Fit local temperatures by NLL, and stop early.

    A share of the images is held out. The fit starts from the single temperature of the other
    images. Of all epochs, that with the lowest NLL on the held-out pixels is kept, if it is below
    that of the single temperature by more than two standard errors; otherwise the single
    temperature of all images. So the NLL of these pixels is never above that of the single
    temperature. A standard error needs two images that are held out. The global random state of
    torch does not change.

    Batches of images are read one after another, so arrays may be memory-mapped. The single
    temperature is that of at most a million pixels.

    Parameters
    ----------
    logits: (N, K, H, W), finite, N ≥ 2.
    labels: (N, H, W), integers in [0, K), or `ignore_index`.
    images: (N, C, H, W), normalised as for the network; by default the fit sees logits alone.
    ignore_index: the label of void pixels; none by default.
    held_out: share of the images for early stopping, in (0, 1); at least one image of two.
    width, kernel: channels and size of the convolutions; `kernel` is odd.
    epochs, patience: largest number, and number without a better NLL after which the fit ends.
    learning_rate: of Adam.

    Raises
    ------
    InputError: invalid input; it names the argument.
    """
    arrays = [as_array(logits, "logits"), as_array(labels, "labels")]
    if images is not None:
        arrays.append(as_array(images, "images"))
    _check_arrays(arrays, ignore_index)
    _check_options(held_out, width, kernel, epochs, batch_size)
    classes, channels = arrays[0].shape[1], arrays[2].shape[1] if images is not None else 0
    count = len(arrays[0])
    order = np.random.default_rng(seed).permutation(count)
    validation, training = np.split(order, [min(max(1, round(held_out * count)), count - 1)])
    data = _Data(arrays, -1 if ignore_index is None else ignore_index, batch_size, device)
    for part in (training, validation):
        if not data.counts(part).any():
            found = f"no pixel that counts in {len(part)} of {count} images"
            raise InputError("labels", found=found, accepted="at least one to fit and to hold out")
    card = LocalTemperatureCard(
        classes=classes,
        channels=channels,
        width=width,
        kernel=kernel,
        temperature=data.single_temperature(training, seed),
        images=len(training),
        held_out=len(validation),
        library=version("recalib"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LocalTemperature(card).to(device)
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    rng = np.random.default_rng([seed, 1])
    single = best = data.losses(model, validation)
    start = weights = copy.deepcopy(model.state_dict())
    best_epoch = epoch = 0
    while epoch < epochs and epoch - best_epoch < patience:
        epoch += 1
        data.train(model, optimiser, rng.permutation(training))
        losses = data.losses(model, validation)
        if losses.sum() < best.sum():
            best, best_epoch, weights = losses, epoch, copy.deepcopy(model.state_dict())
    pixels = data.counts(validation)
    difference, error = _difference(best - single, pixels)
    is_local = error is not None and difference < -_STANDARD_ERRORS * error
    model.load_state_dict(weights if is_local else start)
    model.card = msgspec.structs.replace(
        card,
        # The NLL is convex in 1/T: with the temperature of all images, that of the images that are
        # held out is not above that with the temperature of the others.
        temperature=card.temperature if is_local else data.single_temperature(order, seed),
        nll_single=float(single.sum() / pixels.sum()),
        nll_local=float(best.sum() / pixels.sum()),
        standard_error=error,
        epochs=epoch,
        best_epoch=best_epoch,
        is_local=is_local,
    )
    return model.eval()


def _difference(
    losses: NDArray[np.float64], pixels: NDArray[np.int64]
) -> tuple[float, float | None]:
    """Return the mean difference of a pixel, and its standard error over images; None for one.

    Parameters
    ----------
    losses: sums of differences over the pixels of each image, (n,).
    pixels: numbers of pixels that count, (n,).
    """
    mean = losses.sum() / pixels.sum()
    count = len(losses)
    if count < 2:
        return float(mean), None
    # The variance of a ratio of two sums over images.
    variance = np.square(losses - mean * pixels).sum() * count / (count - 1)
    return float(mean), float(np.sqrt(variance) / pixels.sum())


@dataclass(frozen=True)
class _Data:
    """Logits, labels and perhaps images, read in batches."""

    arrays: list[NDArray[Any]]
    #: A label that no pixel of a class has.
    void: int
    batch_size: int
    device: str

    def single_temperature(self, rows: NDArray[np.intp], seed: int) -> float:
        """Return the single temperature of at most a million pixels of these images."""
        logits, labels = self.arrays[:2]
        rng = np.random.default_rng([seed, 2])
        share = min(1.0, _MAX_PIXELS / labels[rows].size)
        sample = np.full(labels.shape, self.void, np.int64)
        for row in rows:
            is_sampled = rng.random(labels.shape[1:]) < share
            sample[row] = np.where(is_sampled, labels[row], self.void)
        parameters = fit(logits, sample, input="logits", ignore_index=self.void).parameters
        return float(parameters["temperature"].item())

    def train(
        self, model: LocalTemperature, optimiser: torch.optim.Optimizer, rows: NDArray[np.intp]
    ) -> None:
        """Run an epoch."""
        model.train()
        for losses, count in self._batches(model, rows):
            if count:
                optimiser.zero_grad()
                (losses.sum() / count).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    def losses(self, model: LocalTemperature, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the sum of the NLL of each image, (n,)."""
        model.eval()
        with torch.no_grad():
            batches = [losses.cpu().numpy() for losses, _ in self._batches(model, rows)]
        return np.concatenate(batches)

    def counts(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the number of pixels of each image that count, (n,)."""
        return np.array([(self.arrays[1][row] != self.void).sum() for row in rows])

    def _batches(
        self, model: LocalTemperature, rows: NDArray[np.intp]
    ) -> Iterator[tuple[Tensor, int]]:
        """Yield the sum of the NLL of each image, and the number of pixels that count."""
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            parts = [np.ascontiguousarray(array[batch]) for array in self.arrays]
            labels = parts[1].astype(np.int64)
            logits, *images = (
                torch.from_numpy(part.astype(np.float32, copy=False)).to(self.device)
                for part in (parts[0], *parts[2:])
            )
            losses = functional.nll_loss(
                model.log_probabilities(logits, *images),
                torch.from_numpy(labels).to(self.device),
                ignore_index=self.void,
                reduction="none",
            )
            yield losses.sum(dim=(1, 2), dtype=torch.float64), int((labels != self.void).sum())


def _check_arrays(arrays: list[NDArray[Any]], ignore_index: int | None) -> None:
    logits, labels = arrays[:2]
    if logits.ndim != 4 or logits.dtype.kind != "f" or len(logits) < 2 or logits.shape[1] < 2:
        found = f"{logits.dtype} {logits.shape}"
        raise InputError("logits", found=found, accepted="floats (N, K, H, W), N ≥ 2 and K ≥ 2")
    shape = (len(logits), *logits.shape[2:])
    if labels.shape != shape or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}"
        raise InputError("labels", found=found, accepted=f"integers {shape}")
    counted = labels if ignore_index is None else labels[labels != ignore_index]
    if not counted.size or counted.min() < 0 or counted.max() >= logits.shape[1]:
        found = f"{counted.min()} to {counted.max()}" if counted.size else "no pixel that counts"
        raise InputError("labels", found=found, accepted=f"0 to {logits.shape[1] - 1}")
    for images in arrays[2:]:
        if images.ndim != 4 or (len(images), *images.shape[2:]) != shape:
            accepted = f"({shape[0]}, C, {shape[1]}, {shape[2]})"
            raise InputError("images", found=f"shape {images.shape}", accepted=accepted)


def _check_options(held_out: float, width: int, kernel: int, epochs: int, batch_size: int) -> None:
    check_option("held_out", held_out, 0 < held_out < 1, "above 0, below 1")
    check_option("width", width, 1 <= width <= _MAX_WIDTH, f"1 to {_MAX_WIDTH}")
    is_odd = 1 <= kernel <= _MAX_KERNEL and kernel % 2 == 1
    check_option("kernel", kernel, is_odd, f"an odd number up to {_MAX_KERNEL}")
    check_option("epochs", epochs, epochs >= 0, "0 or more")
    check_option("batch_size", batch_size, batch_size >= 1, "1 or more")
