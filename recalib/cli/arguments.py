"""Argument types that several commands share, and the check of a path to be written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.errors import ColumnsError, InputError, UnsupportedError
from recalib.reporting.terminal import warn

if TYPE_CHECKING:  # readers import NumPy, which `--help` does not need
    from recalib.calibrator import Calibrator
    from recalib.files import DataSelection
    from recalib.files.fragments import Fragment
    from recalib.segments import SegmentCalibrator

LabelledData = Annotated[
    list[str],
    typer.Argument(
        help="Logits with labels: .npz, .parquet, .arrow, .csv, .safetensors, .json; a folder, a "
        "glob, a URL such as s3://bucket/folder, or several of these.",
        show_default=False,
    ),
]
ValidationData = Annotated[
    str,
    typer.Argument(
        help="Logits with labels: a file, a folder, a glob, or a URL such as s3://bucket/folder.",
        show_default=False,
    ),
]
TestData = Annotated[
    str,
    typer.Argument(
        help="Logits with labels that no fit uses: a file, a folder, a glob, or a URL.",
        show_default=False,
    ),
]
MoreValidationData = Annotated[
    list[str] | None,
    typer.Option(
        "--add-validation",
        metavar="SOURCE",
        help="Further validation data: a file, a folder, a glob, or a URL; repeatable, in order.",
    ),
]
MoreTestData = Annotated[
    list[str] | None,
    typer.Option(
        "--add-test",
        metavar="SOURCE",
        help="Further test data: a file, a folder, a glob, or a URL; repeatable, in order.",
    ),
]
LogitsData = Annotated[
    list[str],
    typer.Argument(
        help="Logits, labels are not needed; a file, a folder, a glob, a URL such as "
        "s3://bucket/folder, or several of these.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Where several files are read: threads:N, processes:N, local:N for a cluster of Dask "
        "on this machine, tcp://HOST:PORT of its scheduler; RECALIB_CLUSTER by default.",
    ),
]
LogitsFile = Annotated[
    Path, typer.Argument(help="Logits; labels are not needed.", show_default=False)
]
Task = Annotated[
    Literal["multiclass", "multilabel"],
    typer.Option(
        help="multilabel: rows have any number of labels; labels are zeros and ones (N, K), in "
        "any format but .csv."
    ),
]
CalibratorFile = Annotated[Path, typer.Argument(help="A parameter file.", show_default=False)]
ModelOutput = Annotated[
    str | None,
    typer.Option("--from", help="The output of the model to calibrate, if it has several."),
]
ModelOutputKind = Annotated[
    Literal["logits", "probabilities"],
    typer.Option(help="What that output holds; it is never guessed from the values."),
]
OutputFile = Annotated[
    Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)
]
InputKind = Annotated[
    Literal["logits", "probabilities"],
    typer.Option(help="What the file holds; it is never guessed from the values."),
]
#: None: what the calibrator was fitted on.
CalibratorInput = Annotated[
    Literal["logits", "probabilities"] | None,
    typer.Option(
        help="What the file holds; never guessed from the values. Default: what the calibrator was "
        "fitted on."
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MapNames = Annotated[str, typer.Option(help="Maps, separated by commas; all by default.")]
ObjectiveNames = Annotated[
    str, typer.Option(help="Objectives, separated by commas; `all` takes minutes.")
]
PredictionsPolicy = Annotated[
    Literal["may_change", "keep_order", "keep"] | None,
    typer.Option(
        "--predictions",
        help="Which predictions the chosen map may change: any (`may_change`, the default), not "
        "the order by P(y = 1) of two classes (`keep_order`), not the predicted class (`keep`).",
    ),
]
PreserveAccuracy = Annotated[
    bool | None,
    typer.Option(
        "--preserve-accuracy/--any-accuracy",
        help="The same as `--predictions keep` and `--predictions may_change`.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="NAME|SOURCE",
        help="Sample weights: the name of an array or a column, or an .npy file with one number "
        "per row. For several files of data a folder, a glob or a URL of as many .npy files, which "
        "have the same names.",
    ),
]
WeightKind = Annotated[
    Literal["survey", "counts"],
    typer.Option(
        help="`survey`: a weight is how many rows of the population a row stands for, on any "
        "scale. `counts`: it is how many equal rows a row replaces."
    ),
]
Scores = Annotated[
    str | None,
    typer.Option(
        "--scores",
        "--columns",
        metavar="NAME,...",
        help="The names of the scores: one array or column of lists; or one column a class, in "
        "the order of the classes, whose names labels may have; or the column of class 1 of 2. "
        "By default `logits` or `probabilities`, as --input says, or numbered columns.",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="The name of the array or column of labels, by default `labels`, `label`, `y_true` "
        "or `ground_truth`; of an .npy file of scores, the .npy file of labels.",
    ),
]
ClassNames = Annotated[
    str | None,
    typer.Option(
        "--class-names",
        metavar="NAME,...",
        help="Names of the classes, in order, that labels of a table may have; of two classes the "
        "last is class 1, whose score one column holds. By default the names in --scores.",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator",
        metavar="CHARACTER",
        help="Between the columns of a .csv file: , ; | or tab. By default the one in its first "
        "line.",
    ),
]
Segments = Annotated[
    str | None,
    typer.Option(
        "--segments",
        metavar="NAME,...",
        help="Columns of segments of rows, such as a country or a device, of an .npz, .csv or "
        ".parquet file. Those of several columns overlap.",
    ),
]
MetricNames = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="NAME,...",
        help="The metrics to show, as docs/metrics.md names them. By default a few; in JSON all.",
    ),
]
AllMetrics = Annotated[bool, typer.Option("--all", help="Show all metrics.")]
ModelName = Annotated[str, typer.Argument(help="The model's name.", show_default=False)]
ServerUrl = Annotated[
    str,
    typer.Option(
        help="The server's URL, such as http://127.0.0.1:8000; by default RECALIB_SERVER.",
        envvar="RECALIB_SERVER",
        show_envvar=False,
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(help="Promote also if the rows do not look like logits of the model."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="The API key, if the server requires one; by default RECALIB_KEY.",
        show_default=False,
    ),
]


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


def check_output_path(field: str, path: Path, *sources: Path) -> None:
    """Raise `InputError` if `path` cannot be written. Commands call it before they start work.

    Parameters
    ----------
    field: the name of the argument, for the error.
    sources: files that the command reads, and therefore must not overwrite.
    """
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


def load_calibrator(path: Path) -> tuple[Calibrator, SegmentCalibrator | None]:
    """Return the calibrator of a file, and the one with segments that the file has, if any."""
    from recalib.api import load

    try:
        return load(path), None
    except UnsupportedError:
        from recalib.segments import SegmentCalibrator

        by_segment = SegmentCalibrator.load(path)
        return by_segment.common, by_segment


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
    from recalib.core.options import unknown_name

    names = split_names(metrics)
    if metrics is None:
        return None if all_metrics or json_output else ()
    if names is None or all_metrics:
        found = "--all too" if all_metrics else repr(metrics)
        raise InputError("metrics", found=found, accepted="names, separated by commas")
    for name in names:
        if name not in (all_names := list(known)):
            raise unknown_name("metrics", name, all_names)
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
