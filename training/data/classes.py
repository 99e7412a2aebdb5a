"""The classes of a data set, from its labels: numbers, or names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.core.class_names import class_indices
from recalib.core.options import check_option
from recalib.errors import InputError
from training.data.base import Parts, checked_labels
from training.data.split import Inputs, Split


@dataclass(frozen=True)
class Classes:
    """The number of classes, and their names in the order of the logits if they are known."""

    count: int
    names: tuple[str, ...] | None = None
    #: The label of void pixels, which is no class.
    ignore_index: int | None = None

    @classmethod
    def of(
        cls,
        labels: Any,
        field: str,
        option: int | Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        ignore_index: int | None = None,
    ) -> Classes:
        """Return the classes of the training labels.

        Parameters
        ----------
        labels: (N, ...): integers, or names of classes.
        field: name of the labels, for errors.
        option: the recipe's `classes`: their number, or their names in order. By default the names
            are sorted, and the number is the largest integer plus 1.
        names: names in the data's metadata; `option` has precedence.
        ignore_index: the label of void pixels.

        Raises
        ------
        InputError: labels of another type, names that are not as many as `option`, or labels of
            pixels with a gap.
        """
        count = option if isinstance(option, int) else None
        if option is not None and not isinstance(option, int):
            names = option
        if names is None and _are_names(labels):
            _check_names(labels, field)
            names = np.unique(np.asarray(labels).astype(str)).tolist()
        if names is not None:
            if count not in (None, len(names)):
                found = f"{count} for {len(names)} names, {', '.join(names[:10])}"
                raise InputError("options.classes", found=found, accepted="one for each name")
            return cls(len(names), tuple(names), ignore_index)
        if count is None:
            values = checked_labels(labels, field, ignore_index=ignore_index)
            count = _count_classes(values, field, ignore_index)
        return cls(count, None, ignore_index)

    def indices(self, labels: Any, field: str) -> NDArray[np.int64]:
        """Return labels as integers in [0, `count`).

        Raises
        ------
        InputError: a label that is neither a class nor the name of a class, with its index.
        """
        if self.names is not None and _are_names(labels):
            _check_names(labels, field)
            labels, _ = class_indices(labels, self.count, self.names, field=field)
        return checked_labels(labels, field, self.count, self.ignore_index)


class Rows(NamedTuple):
    """The inputs and labels of a split, before labels are checked."""

    inputs: Inputs
    #: (N,) or (N, H, W): integers, or names of classes.
    labels: Any
    #: Name of the labels, for errors.
    field: str


def parts_of(
    rows: Mapping[str, Rows],
    facts: Mapping[str, int],
    option: int | Sequence[str] | None,
    names: Sequence[str] | None = None,
    ignore_index: int | None = None,
) -> Parts:
    """Return the parts of a source from its splits by name; `Classes.of` explains the options.

    Raises
    ------
    InputError: an invalid label.
    """
    train = rows["train"]
    if ignore_index is not None and np.ndim(train.labels) < 2:
        found, accepted = f"{train.field} (N,)", "labels (N, H, W)"
        raise InputError("data.options.ignore_index", found=found, accepted=accepted)
    classes = Classes.of(train.labels, train.field, option, names, ignore_index)
    splits = {
        name: Split.with_all_rows(part.inputs, classes.indices(part.labels, part.field))
        for name, part in rows.items()
    }
    validation, test = splits.get("validation"), splits.get("test")
    return Parts(
        splits["train"], validation, test, classes.count, facts, classes.names, ignore_index
    )


def check_classes(option: int | list[str] | None) -> None:
    """Raise `InputError` unless the option `classes` has two different classes or more."""
    if isinstance(option, int):
        check_option("classes", option, option >= 2, "2 or more")
    elif option is not None and (len(option) < 2 or len(set(option)) < len(option)):
        found = ", ".join(option[:10]) or "nothing"
        raise InputError("options.classes", found=found, accepted="2 or more different names")


def _count_classes(labels: NDArray[np.int64], field: str, ignore_index: int | None) -> int:
    """Return the largest label plus 1; refuse gaps between the labels of pixels.

    A void label such as 255 would otherwise become a class, with hundreds below it.
    """
    present = np.unique(labels)
    present = present[present != ignore_index]
    if not len(present):
        raise InputError(field, found="void pixels alone", accepted="labels of classes")
    count = int(present[-1]) + 1
    if labels.ndim > 1 and len(present) < count:
        absent = np.setdiff1d(np.arange(count), present)
        found = f"label {count - 1}, but {len(absent)} below it never, such as {absent[0]}"
        accepted = "the number of classes, and the label of void pixels as options.ignore_index"
        raise InputError("data.options.classes", found=found, accepted=accepted)
    return count


def _check_names(labels: Any, field: str) -> None:
    """Raise `InputError` for the first label that is no text, such as a missing one."""
    for index, label in enumerate(np.asarray(labels).flat):
        if not isinstance(label, str):
            found = "nothing" if label is None else repr(label)
            raise InputError(f"{field}[{index}]", found=found, accepted="the name of a class")


def _are_names(labels: Any) -> bool:
    values = np.asarray(labels)
    if values.dtype.kind == "O":
        return any(isinstance(value, str) for value in values.flat)
    return values.dtype.kind in "US"
