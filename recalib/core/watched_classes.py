"""Which classes to monitor, by name or index."""

from __future__ import annotations

from collections.abc import Sequence

from recalib.errors import InputError

#: The only entry of a list of watched classes that stands for every class.
ALL_CLASSES = "all"
#: Largest number of watched classes: cost and the size of the state grow with it.
MAX_WATCHED_CLASSES = 1_000


def watched_indices(
    classes: Sequence[str], count: int, labels: Sequence[str] | None = None
) -> tuple[int, ...]:
    """Return the indices of the watched classes, (W,), ascending.

    Parameters
    ----------
    classes: names, or indices as text ("3") that are no name; ("all",) for every class.
    count: the number of classes of the model, K.
    labels: the names of all classes, where they are known.

    Raises
    ------
    InputError: a class that the model does not have, a class twice, none, or more than 1,000.
    """
    if tuple(classes) == (ALL_CLASSES,):
        indices = list(range(count))
    else:
        by_name = {} if labels is None else {name: index for index, name in enumerate(labels)}
        indices = [_index(entry, count, by_name) for entry in classes]
    different = len(set(indices))
    if not 1 <= len(indices) <= MAX_WATCHED_CLASSES or different < len(indices):
        found = f"{len(indices)} classes, {different} of them different"
        accepted = f"1 to {MAX_WATCHED_CLASSES:,}, all different"
        raise InputError("classes", found=found, accepted=accepted)
    return tuple(sorted(indices))


def _index(entry: str, count: int, by_name: dict[str, int]) -> int:
    index = by_name.get(entry)
    if index is None and entry.isdecimal() and len(entry) < 10:
        index = int(entry)
    if index is None or index >= count:
        names = " or a class name" if by_name else ""
        accepted = f"an index from 0 to {count - 1}{names}"
        raise InputError("classes", found=f"{entry!r:.80}", accepted=accepted)
    return index
