"""Loading of batches, in worker processes or in this process.

A batch is a function of its rows and its seed alone, so the number of workers does not change it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from recalib.errors import InputError, UnavailableError
from training.data import Split
from training.data.augmentation import Augmentation
from training.data.split import copy_to

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Inputs, and labels (N,) or (N, H, W).
LabelledBatch: TypeAlias = tuple[Any, Tensor]
StartMethod: TypeAlias = Literal["fork", "spawn"]


#: Time in which a process that has closed its connections ends.
_JOIN_SECONDS = 1.0


class Share(NamedTuple):
    """The rows of a batch: positions in a split (n,)."""

    rows: NDArray[Any]
    #: Determines the augmentation; None for rows without augmentation.
    seed: int | None = None


class _Request(NamedTuple):
    """A batch of a split."""

    split: str
    share: Share


class _Batches(Dataset[Any]):
    """Batches by request."""

    def __init__(self, splits: Mapping[str, Split], augment: Augmentation | None) -> None:
        self._splits, self._augment = splits, augment

    def __getitem__(self, request: _Request) -> LabelledBatch:
        split, (rows, seed) = self._splits[request.split], request.share
        labels = torch.from_numpy(split.labels[rows])
        if seed is None or self._augment is None:
            return split.batch(rows), labels
        generator = torch.Generator().manual_seed(seed)
        inputs = split.training_batch(rows, generator)
        return self._augment(inputs, copy_to(labels, split.inputs.device), generator)


class _WorkerBatches(_Batches):
    """Batches, or the error of a batch: torch would replace an error that is raised by another."""

    def __getitem__(self, request: _Request) -> Any:
        try:
            return super().__getitem__(request)
        except InputError as error:
            return error


class _Requests:
    """The requests that the workers get next; torch reads them again for each iteration."""

    def __init__(self) -> None:
        self.items: Sequence[_Request] = ()

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.items)


class BatchLoader:
    """Loads batches of splits onto the device of `fabric`.

    Worker processes start with the first batch that needs them, and remain until `close`, so that a
    run starts them once. They end by themselves within seconds after this process is killed. Where
    one of them is killed, the context manager raises `UnavailableError`.

    Parameters
    ----------
    augment: applied to shares with a seed.
    workers: processes that load ahead of their use, two batches each. Without them, a batch is
        loaded when it is used. Inputs that are on a GPU need none.
    channels_last: whether images are stored with their channels last.
    start_method: forked workers share the rows in memory. A process with threads or connections to
        a database must use `spawn`: workers then get copies of the rows.
    """

    def __init__(
        self,
        fabric: Fabric,
        splits: Mapping[str, Split],
        augment: Augmentation | None = None,
        *,
        workers: int = 0,
        start_method: StartMethod = "fork",
        channels_last: bool = False,
    ) -> None:
        self.fabric = fabric
        self._layout = torch.channels_last if channels_last else torch.preserve_format
        self._splits = splits
        self._local = _Batches(splits, augment)
        self._requests = _Requests()
        self._loader: DataLoader[Any] | None = None
        if workers:
            self._loader = DataLoader(
                _WorkerBatches(splits, augment),
                batch_size=None,
                sampler=self._requests,
                num_workers=workers,
                multiprocessing_context=start_method,
                worker_init_fn=_reset_signals,
                pin_memory=fabric.device.type == "cuda",
                # The loader draws a seed, by default from the generator of the network.
                generator=torch.Generator(),
                collate_fn=_identity,
                persistent_workers=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with _quiet_child_signals():
            by_worker = isinstance(error, (RuntimeError, OSError, EOFError))
            code = self._exit_code() if by_worker else None
            self.close()
        if code is not None:
            reason = signal.strsignal(-code) if code < 0 else f"exit code {code}"
            hint = "it may lack memory, or shared memory"
            message = f"a process that loads batches has ended: {reason}; {hint}"
            raise UnavailableError(message) from error

    def load(self, name: str, shares: Sequence[Share]) -> Iterator[LabelledBatch]:
        """Yield the batch of each share of a split, in order.

        A call ends the iteration of the call before.

        Raises
        ------
        InputError: a row that cannot be read any more, or rows that `spawn` cannot copy.
        """
        requests = [_Request(name, share) for share in shares]
        if self._loader is None or self._splits[name].inputs.device.type != "cpu":
            for request in requests:
                yield self._place(self._local[request])
            return
        self._requests.items = requests
        for batch in _iterate(self._loader):
            if isinstance(batch, InputError):
                raise batch
            yield self._place(batch)

    def _place(self, batch: Any) -> LabelledBatch:
        """Return a batch on the device, in its layout."""
        inputs, labels = to_device(self.fabric, batch)
        if self._layout == torch.channels_last:
            inputs = inputs.contiguous(memory_format=self._layout)
        return inputs, labels

    def close(self) -> None:
        """End the workers."""
        iterator = self._iterator()
        if iterator is not None:
            # Explicit, because the traceback of an error keeps the iterator alive.
            iterator._shutdown_workers()

    def _exit_code(self) -> int | None:
        """Return the exit code of a worker that ended by itself, if any has."""
        iterator = self._iterator()
        for worker in [] if iterator is None else iterator._workers:
            worker.join(_JOIN_SECONDS)
            if worker.exitcode:
                return int(worker.exitcode)
        return None

    def _iterator(self) -> Any:
        """Return torch's iterator, which has the workers; None before they start."""
        return None if self._loader is None else self._loader._iterator


@contextlib.contextmanager
def _quiet_child_signals() -> Iterator[None]:
    """Replace torch's handler of SIGCHLD in the block.

    When a worker is killed, the handler raises RuntimeError at any point of the main thread. If the
    connection to the worker fails first, that hides the reason, and interrupts the shutdown.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


def to_device(fabric: Fabric, batch: Any) -> Any:
    """Return the tensors of a batch on the device of `fabric`; the host does not wait for it."""
    if isinstance(batch, Tensor):
        return copy_to(batch, fabric.device)
    if isinstance(batch, Mapping):
        return {name: to_device(fabric, value) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(to_device(fabric, value) for value in batch)
    return batch


def _iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Return the iterator of a loader; its workers start with the first."""
    try:
        with warnings.catch_warnings():
            # torch warns of rows that cannot be pickled, before the error.
            warnings.filterwarnings("ignore", "Got pickle error")
            return iter(loader)
    except (AttributeError, TypeError, PicklingError) as error:
        accepted = "0, or rows that can be pickled for a process"
        raise InputError("workers", found=str(error), accepted=accepted) from error


def _reset_signals(_number: int) -> None:
    # Ctrl-C reaches all processes: the main process stops the workers when it is ready.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _identity(batch: Any) -> Any:
    return batch
