"""Input that `compare` and `report` share: labelled data, and pairs of map and objective."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recalib.cli import arguments
from recalib.errors import InputError
from recalib.reporting.terminal import warn

if TYPE_CHECKING:
    from recalib.files import DataSelection, LabelledData


def local_paths(sources: Sequence[Sequence[str]], cluster: str | None) -> list[Path] | None:
    """Return the path of each source if all are single local files and read here; else None."""
    from recalib.files.fragments import is_single_file

    if cluster is None and all(is_single_file(source) for source in sources):
        return [Path(source[0]) for source in sources]
    return None


def read_validation_and_test(
    paths: Sequence[Path], input: Any, selection: DataSelection, task: Any = "multiclass"
) -> tuple[LabelledData, LabelledData]:
    """Return the rows of both files; an error names the file."""
    rows = read_labelled("validation", paths[0], input, selection, task=task)
    return rows, read_labelled("test", paths[1], input, selection, rows, task=task)


def read_labelled(
    name: str,
    path: Path,
    input: Any,
    selection: DataSelection,
    validation: LabelledData | None = None,
    *,
    task: Any = "multiclass",
) -> LabelledData:
    """Return the rows of a labelled file.

    Parameters
    ----------
    name: what the file is, for errors.
    selection: as in `read_file`.
    validation: rows that must have the same number of classes.
    task: `multilabel` for labels (N, K).
    """
    try:
        rows: LabelledData = arguments.read_file(path, selection, input=input, task=task)
    except InputError as error:
        field = f"{name}: {error.field}"
        raise type(error)(field, found=error.found, accepted=error.accepted) from error
    classes = rows.logits.shape[1]
    if validation is not None and classes != validation.logits.shape[1]:
        accepted = f"{validation.logits.shape[1]}, as in the validation file"
        raise InputError(f"{name}: logits", found=f"{classes} classes", accepted=accepted)
    return rows


def compatible_pairs(maps: str, objectives: str) -> list[tuple[str, str]]:
    """Return the compatible pairs of map and objective, from comma-separated names.

    A warning reports each incompatible pair if both arguments name something.

    Raises
    ------
    InputError: a name is unknown, or no pair is compatible.
    """
    from recalib.fitting.comparison import compatible_pairs as find_pairs

    map_names, objective_names = arguments.split_names(maps), arguments.split_names(objectives)
    pairs, errors = find_pairs(map_names, None if objectives == "all" else objective_names)
    if maps and objectives:
        for error in errors:
            warn(f"left out: {error}")
    return pairs
