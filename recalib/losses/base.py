"""The contract of a training loss.

A loss is a torch module without parameters. Its fields are its options. It takes logits and labels
and returns one number: the mean over the batch, to be minimised. Half precision is computed in
float32, also under autocast.

Labels are not checked on an accelerator, where reading them would synchronise the device, nor while
`torch.compile` traces.

Legend: N rows, K classes, z logits, p = softmax z, y the label, ŷ the first class with the largest
logit, c = p_ŷ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from recalib.core.field_types import check_fields
from recalib.errors import InputError
from recalib.losses.processes import gather_rows
from recalib.ops.torch_ops import TorchOps

#: Rows that are computed at once.
_ROWS = 16384
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(eq=False)
class Loss(nn.Module):
    """Base class of all losses.

    A loss is a dataclass of its options, and a `RowLoss` or a `BatchLoss`.

    Options: `ignore_index`, the label of rows that do not count, such as 255 for void pixels;
    default none. If no row is left, the loss is 0.

    Examples
    --------
    >>> import torch
    >>> from recalib.losses import LOSSES
    >>> loss = LOSSES["focal"](gamma=3.0)
    >>> round(float(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))), 4)
    0.0002
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The cost of a step, in the sizes of the legend.
    cost: ClassVar[str] = "N·K"
    #: Whether labels may be probabilities of the classes.
    accepts_probabilities: ClassVar[bool] = False
    #: Whether the loss depends on the number of epochs of the run.
    depends_on_epochs: ClassVar[bool] = False

    ignore_index: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__init__()
        check_fields(self)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the batch: a scalar of the logits' precision, at least float32.

        Parameters
        ----------
        logits: (N, K), or (N, K, ...) with one prediction for each further position; or (N,), the
            log-odds of class 1 of 2. −inf for a class that is impossible in its row; finite
            otherwise.
        labels: integers in [0, K), or `ignore_index`, (N,) or (N, ...); for a loss with
            `accepts_probabilities` also floats of the shape of the logits: the probability of each
            class, or of class 1 for logits (N,).

        Raises
        ------
        InputError: other shapes or types; labels out of range, or of an impossible class;
            probabilities where the loss does not accept them.
        """
        with torch.autocast(logits.device.type, enabled=False):
            rows, targets = flatten_batch(
                logits, labels, self.ignore_index, self.accepts_probabilities
            )
            return self._reduce(rows, targets, labels)

    def total_weight(self, labels: Tensor) -> Tensor:
        """Return the weight of all labels, by which a mean over them is divided: a float64 scalar.

        With it, the mean over a batch is computed from its parts, as of gradient accumulation or of
        several processes: Σ weight of a part × mean of the part / Σ weight of a part.

        Parameters
        ----------
        labels: integers as in `forward`. On a device without float64, the result is float32.
        """
        return self._counts(labels).sum(dtype=sum_dtype(labels.device))

    def _counts(self, labels: Tensor) -> Tensor:
        if self.ignore_index is None:
            return torch.ones_like(labels, dtype=torch.bool)
        return labels != self.ignore_index

    @abstractmethod
    def _reduce(self, logits: Tensor, labels: Tensor, original: Tensor) -> Tensor:
        """Return the loss of a checked batch; `original` has the shape of the caller's labels."""

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Start epoch `epoch`, counted from 0, of `epochs`. Most losses ignore it."""


@dataclass(eq=False)
class BatchLoss(Loss):
    """A loss of a whole batch, which is no mean over rows. A subclass implements `value`.

    With `ignore_index`, it selects the other rows, which synchronises an accelerator.

    Options: `gather`, whether the batch is that of all processes of `torch.distributed`; default
    false. Value and gradient under `DistributedDataParallel` are then those of one process that has
    all rows. Every process must call the loss. Gradient accumulation cuts batches: call the loss
    with the logits of all parts.
    """

    gather: bool = field(default=False, kw_only=True)

    #: The rows of each process in this batch, where all of them count; None: they are exchanged.
    process_rows: ClassVar[Sequence[int] | None] = None

    def _reduce(self, logits: Tensor, labels: Tensor, original: Tensor) -> Tensor:
        if self.ignore_index is not None and not labels.is_floating_point():
            counts = self._counts(labels)
            logits, labels = logits[counts], labels[counts]
        if self.gather:
            rows = self.process_rows if self.ignore_index is None else None
            logits, labels = gather_rows(logits, labels, rows=rows)
        return self.value(logits, labels) if len(labels) else logits.sum()

    @abstractmethod
    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits: (N, K), float32 or float64, N ≥ 1.
        labels: int64 (N,); or probabilities (N, K), if the loss accepts them.
        """


@dataclass(eq=False)
class RowLoss(Loss):
    """A loss that is a mean over rows. A subclass implements `rows`.

    Options: `reduction`, as in torch: `mean`, `sum`, or `none`, which returns a number for each
    label, 0 for ignored ones; `weight`, a factor for each class, as in torch: each row counts by
    the factor of its label, and the mean is divided by their sum. If labels are probabilities, each
    is multiplied by the factor of its class, and the mean is divided by the number of rows.
    """

    reduction: Literal["mean", "sum", "none"] = field(default="mean", kw_only=True)
    weight: tuple[float, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        factors = None
        if self.weight is not None:
            self.weight = tuple(float(factor) for factor in self.weight)
            factors = torch.tensor(self.weight)
            if not bool((factors >= 0).all() and factors.isfinite().all()):
                raise InputError(
                    "options.weight", found=str(self.weight), accepted="numbers ≥ 0, one a class"
                )
        self._factors: Tensor | None
        self.register_buffer("_factors", factors, persistent=False)

    @abstractmethod
    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, (N,); parameters as `BatchLoss.value`."""

    def _reduce(self, logits: Tensor, labels: Tensor, original: Tensor) -> Tensor:
        is_soft = labels.is_floating_point()
        labels, factors = (self._weigh_soft if is_soft else self._weigh)(logits, labels)
        losses = self.rows(logits, labels)
        if factors is not None:
            losses = losses * factors
        if self.reduction == "mean":
            if is_soft or factors is None:
                return losses.mean()
            total = factors.sum()
            return losses.sum() / torch.where(total > 0, total, 1.0)
        if self.reduction == "sum":
            return losses.sum()
        return losses.reshape(
            original.shape[:1] + original.shape[2:] if is_soft else original.shape
        )

    def total_weight(self, labels: Tensor) -> Tensor:
        if self._factors is None:
            return super().total_weight(labels)
        counts = self._counts(labels)
        factors = self._factors.to(sum_dtype(labels.device))[torch.where(counts, labels, 0).long()]
        return (factors * counts).sum()

    def _weigh(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return labels that are possible, and how much each row counts, (N,); None: the same."""
        counts, factors = self._counts(labels), None
        if self.weight is not None:
            factors = self._class_factors(logits)[torch.where(counts, labels, 0)] * counts
        if self.ignore_index is not None:
            factors = counts.to(logits.dtype) if factors is None else factors
            # The loss of the predicted class is finite.
            labels = torch.where(counts, labels, predict(logits)[1])
        return labels, factors

    def _weigh_soft(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return labels with the same product, of probabilities and of how much rows count."""
        if self.weight is None:
            return labels, None
        labels = labels * self._class_factors(logits)
        factors = labels.sum(dim=1)
        return labels / torch.where(factors > 0, factors, 1.0)[:, None], factors

    def _class_factors(self, logits: Tensor) -> Tensor:
        if self._factors is None or self.weight is None or len(self.weight) != logits.shape[1]:
            found = f"{len(self.weight or ())} numbers for {logits.shape[1]} classes"
            raise InputError("options.weight", found=found, accepted="a number for each class")
        if logits.dtype == torch.float64:  # more digits than the buffer has
            return logits.new_tensor(self.weight)
        return self._factors.to(device=logits.device, dtype=logits.dtype)


@dataclass(eq=False)
class Regulariser(Loss):
    """A secondary loss: it does not reward accuracy and is added to a primary loss.

    Examples
    --------
    >>> import torch
    >>> from recalib.losses import LOSSES
    >>> loss, calibration = LOSSES["cross_entropy"](), LOSSES["sb_ece"]()
    >>> z, y = torch.tensor(logits), torch.tensor(labels)
    >>> total = loss(z, y) + 0.5 * calibration(z, y)
    """


def flatten_batch(
    logits: Tensor,
    labels: Tensor,
    ignore_index: int | None = None,
    accepts_probabilities: bool = False,
) -> tuple[Tensor, Tensor]:
    """Check a batch; return logits (N, K) in float32 or float64 and labels as `BatchLoss.value`."""
    original = tuple(logits.shape)
    if not logits.is_floating_point() or not logits.ndim or not len(logits):
        raise _bad_logits(logits)
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
        if labels.is_floating_point() and labels.shape == original:
            labels = torch.stack([1 - labels, labels], dim=1)
    if logits.shape[1] < 2:
        raise _bad_logits(logits)
    classes = logits.shape[1]
    is_soft = accepts_probabilities and labels.is_floating_point()
    shape = logits.shape if is_soft else logits.shape[:1] + logits.shape[2:]
    if not (is_soft or labels.dtype in _INTEGERS) or labels.shape != shape:
        accepted = f"integers {tuple(logits.shape[:1] + logits.shape[2:])}"
        if accepts_probabilities:
            accepted += f" or probabilities {original}"
        raise InputError(
            "labels",
            found=f"{_dtype_name(labels.dtype)} {tuple(labels.shape)}",
            accepted=f"{accepted} for logits {original}",
        )
    if logits.ndim > 2:
        logits = logits.movedim(1, 0).reshape(classes, -1).T
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if is_soft:
        labels = labels.movedim(1, -1).reshape(-1, classes).to(logits.dtype)
    else:
        labels = labels.reshape(-1).long()
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_labels(logits, labels, ignore_index)
    return logits, labels


def _check_labels(logits: Tensor, labels: Tensor, ignore_index: int | None) -> None:
    if labels.is_floating_point():
        if not bool((labels >= 0).all() & ((labels.sum(dim=1) - 1).abs() < 1e-3).all()):
            raise InputError(
                "labels", found="other numbers", accepted="probabilities, whose sum is 1"
            )
        if bool((labels * is_masked(logits) > 0).any()):
            raise InputError(
                "labels", found="a class with logit −inf", accepted="classes that are possible"
            )
        return
    classes = logits.shape[1]
    if ignore_index is not None:
        labels = torch.where(labels == ignore_index, predict(logits)[1], labels)
    if not bool(((labels >= 0) & (labels < classes)).all()):
        found = f"{int(labels.min())} to {int(labels.max())}"
        accepted = f"0 to {classes - 1}"
        if ignore_index is not None:
            accepted += f", or {ignore_index}, which is ignored"
        raise InputError("labels", found=found, accepted=accepted)
    impossible = is_masked(take_column(logits.detach(), labels))
    # In a row with +∞ or NaN, as of a network that diverged, the loss says so.
    if bool(impossible.any()) and bool((logits[impossible].amax(dim=1) < torch.inf).any()):
        raise InputError(
            "labels", found="a class with logit −inf", accepted="classes that are possible"
        )


def _bad_logits(logits: Tensor) -> InputError:
    return InputError(
        "logits",
        found=f"{_dtype_name(logits.dtype)} {tuple(logits.shape)}",
        accepted="floats (N,), (N, K) or (N, K, ...), N ≥ 1 and K ≥ 2",
    )


def is_masked(x: Tensor) -> Tensor:
    """Return where logits or logarithms of probabilities are −inf: impossible classes."""
    return x == -torch.inf


def possible_classes(x: Tensor) -> Tensor:
    """Return the number of classes of each row that are not `is_masked`, (N,), as floats."""
    is_read = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if is_read and bool(x.detach().min() > -torch.inf):  # a sixth of the time
        return x.new_full((len(x),), x.shape[1])
    return (~is_masked(x)).to(x.dtype).sum(dim=1)


def entropy(log_p: Tensor) -> Tensor:
    """Return the entropy of each row in nats, (N,)."""
    return -(log_p.exp() * torch.where(is_masked(log_p), 0.0, log_p)).sum(dim=1)


def over_labels(terms: Tensor, log_p: Tensor, labels: Tensor) -> Tensor:
    """Return Σ_k y_k t_k of each row, (N,), for labels (N, K) that are probabilities.

    Parameters
    ----------
    terms: t, (N, K); at impossible classes, which have y_k = 0, they may be anything finite.
    """
    return (torch.where(is_masked(log_p), 0.0, labels) * terms).sum(dim=1)


def count_labels(labels: Tensor, logits: Tensor) -> Tensor:
    """Return how often each class is the label, or the sum of its probabilities, (K,)."""
    if labels.is_floating_point():
        return labels.sum(dim=0)
    ones = torch.ones_like(labels, dtype=logits.dtype)
    return torch.zeros_like(logits[0]).scatter_add(0, labels, ones)


def ops_for(logits: Tensor) -> TorchOps:
    """Return the backend for `recalib.ops.formulas` on tensors like `logits`."""
    return TorchOps(logits.dtype, logits.device)


def take_column(x: Tensor, columns: Tensor) -> Tensor:
    """Return the entry of each row of x (N, K) at `columns` (N,), as (N,)."""
    return x.gather(1, columns[:, None])[:, 0]


def label_log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p_y of each row, (N,); for labels (N, K), log p of each class, 0 if impossible."""
    if labels.is_floating_point():
        log_p = logits.log_softmax(dim=1)
        return torch.where(is_masked(log_p), 0.0, log_p)
    return -functional.cross_entropy(logits, labels, reduction="none")


def predict(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest logit of each row, (N,), without gradient, and its first class, (N,)."""
    logits = logits.detach()
    if logits.device.type != "cpu" or logits.stride(0) != 1 or not 1 < logits.shape[1] < 2**15:
        top, prediction = logits.max(dim=1)
        return top, prediction
    # Of pixels, `max` takes three times as long.
    top = logits.amax(dim=1)
    order = torch.arange(logits.shape[1] - 1, -1, -1, dtype=torch.int16)
    parts = [((z == t[:, None]) * order).amax(dim=1) for z, t in split_rows(logits, top)]
    return top, logits.shape[1] - 1 - torch.cat(parts).long()


def top_prediction(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence of each row, (N,), and whether its prediction is correct, (N,)."""
    # Of the logits: two that differ may have equal probabilities after rounding.
    top, prediction = predict(logits)
    if is_transformed(logits):
        return take_column(logits.softmax(dim=1), prediction), prediction == labels
    confidence: Tensor = _Confidence.apply(logits, top, prediction)  # type: ignore[no-untyped-call]
    return confidence, prediction == labels


def is_transformed(x: Tensor) -> bool:
    """Return whether torch.func or forward mode differentiates, which need formulas in torch."""
    if torch.compiler.is_compiling():
        return False
    dual = torch.autograd.forward_ad.unpack_dual(x)  # type: ignore[no-untyped-call]
    return dual.tangent is not None or torch._C._are_functorch_transforms_active()


class _Confidence(torch.autograd.Function):
    """The softmax of each row at its prediction, without an array of probabilities."""

    @staticmethod
    def forward(logits: Tensor, top: Tensor, prediction: Tensor) -> Tensor:
        parts = split_rows(logits, top)
        return torch.cat([(z - t[:, None]).exp_().sum(dim=1).reciprocal_() for z, t in parts])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[2], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        slopes, first = torch.empty_like(ctx.saved_tensors[0]), 0
        for z, place, c, g in split_rows(*ctx.saved_tensors, gradient):
            part = (z - take_column(z, place)[:, None]).exp_() * (-g * c * c)[:, None]
            slopes[first : first + len(z)] = part.scatter_add_(1, place[:, None], (g * c)[:, None])
            first += len(z)
        return slopes, None, None


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return float64, the type of long sums, or float32 on a device without float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def split_rows(*arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Return parts of arrays (N, ...) that stay in the cache of a processor."""
    return zip(*(torch.split(array, _ROWS) for array in arrays), strict=True)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
