"""What commands do with arguments that they share: check paths, read files, split names."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recalib.errors import ColumnsError, InputError
from recalib.reporting.terminal import warn

if TYPE_CHECKING:  # readers import NumPy, which `--help` does not need
    from recalib.files import DataSelection
    from recalib.files.fragments import Fragment


def only_file(data: list[str], cluster: str | None, **options: Any) -> Path | None:
    """Return the path of data that is one local file and read here; None for other data.

    Parameters
    ----------
    options: by name, options that need all rows in memory; with other data each must be None.
    """
    from recalib.files.fragments import is_single_file

    if cluster is None and is_single_file(data):
        return Path(data[0])
    for name, value in options.items():
        if value is not None:
            found = f"{value}, with several files or a cluster"
            raise InputError(name, found=found, accepted="one file")
    return None


def cluster_name(cluster: str | None) -> str | None:
    """Return the cluster for data in several files: the option, or else RECALIB_CLUSTER."""
    return cluster or os.environ.get("RECALIB_CLUSTER") or None


def short_name(sources: Sequence[str]) -> str:
    """Return the name of the first source, and the number of further ones."""
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"{Path(sources[0]).name}{more}"


def check_output_path(field: str, path: Path, *sources: Path, suffix: str = "") -> None:
    """Raise `InputError` if `path` cannot be written. Commands call it before they start work.

    Parameters
    ----------
    field: the name of the argument, for the error.
    sources: files that the command reads, and therefore must not overwrite.
    suffix: that the name must have; any by default.
    """
    if suffix and path.suffix != suffix:
        raise InputError(field, found=str(path), accepted=f"a name that ends in {suffix}")
    accepted = "a file in a folder that exists"
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:  # the name is too long, or the folder is not readable
        found = f"{path} ({error.strerror})"
        raise InputError(field, found=found, accepted=accepted) from None
    if is_folder:
        raise InputError(field, found=f"{path} (a folder)", accepted=accepted)
    if not path.parent.is_dir():
        raise InputError(field, found=f"{path} (no folder {path.parent})", accepted=accepted)
    if exists and any(source.exists() and path.samefile(source) for source in sources):
        raise InputError(
            field,
            found=f"{path}, which is read",
            accepted="a file that the command does not read",
        )


def selection_of(
    scores: str | None,
    label: str | None = None,
    weights: str | None = None,
    separator: str | None = None,
    class_names: str | None = None,
) -> DataSelection:
    """Return the names in a file that the options say.

    Raises
    ------
    InputError: no names in `scores` or `class_names`.
    """
    from recalib.files import DataSelection

    names, of_classes = split_names(scores), split_names(class_names)
    for field, text, parsed in (
        ("scores", scores, names),
        ("class_names", class_names, of_classes),
    ):
        if text is not None and parsed is None:
            raise InputError(field, found=repr(text), accepted="names, separated by commas")
    column = None if is_weight_file(weights) else weights
    character = "\t" if separator == "tab" else separator
    return DataSelection(names, label, column, of_classes, character)


def read_file(
    path: Path,
    selection: DataSelection,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Return the rows of a file, as `recalib.files.read` with the same `options`.

    Parameters
    ----------
    selection: of the options.
    class_names: names of the classes, if they are known; columns of them have their order.

    Raises
    ------
    InputError: as `recalib.files.read`, or class names in another order. Without arrays or columns
        that are known to be scores, the message says which option names them.
    """
    from recalib import files
    from recalib.core.class_names import check_column_order

    check_column_order(selection.scores, class_names, "scores")
    check_column_order(selection.class_names, class_names, "class_names")
    known = selection.class_names if class_names is None else tuple(class_names)
    try:
        rows = files.read(path, selection=replace(selection, class_names=known), **options)
    except ColumnsError as error:
        accepted = (
            f"{error.accepted}, or --scores NAME,... with the array, or with the columns in the "
            "order of the classes"
        )
        raise InputError(error.field, found=error.found, accepted=accepted) from None
    masked = (rows.logits == -math.inf).any(axis=1).sum()
    if path.suffix.lower() == ".json" and masked:  # pandas writes NaN as null
        count = f"{masked} of {len(rows.logits)} rows"
        warn(f"{path.name}: null masks a class, with P = 0, in {count}")
    return rows


def select_in(data: Sequence[str], selection: DataSelection) -> Sequence[str] | Sequence[Fragment]:
    """Return several files with a selection, unchanged for none."""
    from recalib.files import DataSelection
    from recalib.files.fragments import list_fragments

    if selection == DataSelection():
        return data
    return list_fragments(data, selection=selection)


def metric_names(
    metrics: str | None, all_metrics: bool, json_output: bool, known: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the metrics that the options name; () for a short table, None for all.

    Raises
    ------
    InputError: an unknown name, or --metrics and --all.
    """
    from recalib.core.options import check_names

    names = split_names(metrics)
    if metrics is None:
        return None if all_metrics or json_output else ()
    if names is None or all_metrics:
        found = "--all too" if all_metrics else repr(metrics)
        raise InputError("metrics", found=found, accepted="names, separated by commas")
    check_names("metrics", names, known)
    return names


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names of a comma-separated list, None if it is missing or empty."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip()) or None


def class_names_of(selection: DataSelection) -> tuple[str, ...] | None:
    """Return the names of classes, by default those of columns; None for one name."""
    if selection.class_names is not None:
        return selection.class_names
    names = selection.scores
    return None if names is None or len(names) == 1 else names


def is_weight_file(weights: str | None) -> bool:
    """Return whether weights are in files, or there are none; other weights are named."""
    return weights is None or weights.endswith(".npy")


def read_weights(path: str | None, field: str = "weights") -> Any:
    """Return the array of an .npy file of sample weights, or None without such a path."""
    import numpy as np

    if path is None or not is_weight_file(path):
        return None
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InputError(field, found=f"{path} ({reason})", accepted="an .npy file") from None
    except (ValueError, EOFError):
        raise InputError(field, found=f"{path}", accepted="an .npy file of numbers") from None
