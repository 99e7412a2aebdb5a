"""Argument types that several commands share, and the check of a path to be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recalib.errors import ColumnsError, InputError

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
        metavar="SOURCE",
        help="Sample weights: an .npy file with one number per row. For several files of data a "
        "folder, a glob or a URL of as many .npy files, which have the same names.",
    ),
]
WeightKind = Annotated[
    Literal["survey", "counts"],
    typer.Option(
        help="`survey`: a weight is how many rows of the population a row stands for, on any "
        "scale. `counts`: it is how many equal rows a row replaces."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,NAME,...",
        help="The columns of scores of a .csv, .parquet or .arrow file that have the names of the "
        "classes, in order; labels may then be these names. One name is that of class 1 of 2. "
        "Default: one column of lists, or numbered columns.",
    ),
]
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


def read_file(
    path: Path,
    columns: str | None,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Return the rows of a file, as `recalib.files.read` with the same `options`.

    Parameters
    ----------
    columns: names of the columns of scores, separated by commas; None for the rules of files.
    class_names: names of the classes, if they are known; columns of them have their order.

    Raises
    ------
    InputError: as `recalib.files.read`; no names, or those of the classes in another order.
        Without columns that are known to be scores, the message says which option names them.
    """
    from recalib import files
    from recalib.core.class_names import check_column_order

    names = split_names(columns)
    if columns is not None and names is None:
        accepted = "names of columns, separated by commas"
        raise InputError("columns", found=repr(columns), accepted=accepted)
    check_column_order(names, class_names, "columns")
    try:
        return files.read(path, columns=names, class_names=class_names, **options)
    except ColumnsError as error:
        accepted = (
            f"{error.accepted}, or --columns NAME,NAME,... with the columns of scores, in the "
            "order of the classes"
        )
        raise InputError(error.field, found=error.found, accepted=accepted) from None


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names of a comma-separated list, None if it is missing or empty."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip()) or None


def class_names_of(columns: str | None) -> tuple[str, ...] | None:
    """Return names of columns as names of classes, None for the one column of class 1 of 2."""
    names = split_names(columns)
    return None if names is None or len(names) == 1 else names


def read_weights(path: str | None, field: str = "weights") -> Any:
    """Return the array of an .npy file of sample weights, or None without a path."""
    import numpy as np

    if path is None:
        return None
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InputError(field, found=f"{path} ({reason})", accepted="an .npy file") from None
    except (ValueError, EOFError):
        raise InputError(field, found=f"{path}", accepted="an .npy file of numbers") from None
