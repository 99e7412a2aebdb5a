"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recalib.settings import Settings


def setting_option(name: str, text: str) -> Any:
    """Return the option of a setting, whose help names its variable and its default."""
    default = str(Settings.model_fields[name].default).replace(str(Path.home()), "~")
    shown = f"; default: {default}" if default else ""
    return typer.Option(help=f"{text} [RECALIB_{name.upper()}{shown}]")


Home = Annotated[Path | None, setting_option("home", "Folder of the database and the data.")]
DatabaseUrl = Annotated[
    str | None,
    setting_option("database_url", "SQLAlchemy URL of the registry, by default SQLite in --home."),
]
LabelledData = Annotated[
    list[str],
    typer.Argument(
        help="Logits with labels: .npz, .parquet, .arrow, .csv, .safetensors, .json; a folder, a "
        "glob, a URL such as s3://bucket/folder, or several of these."
    ),
]
ValidationData = Annotated[
    str,
    typer.Argument(
        help="Logits with labels: a file, a folder, a glob, or a URL such as s3://bucket/folder."
    ),
]
TestData = Annotated[
    str,
    typer.Argument(help="Logits with labels that no fit uses: a file, a folder, a glob, or a URL."),
]
MoreValidationData = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE",
        help="Further validation data: a file, a folder, a glob, or a URL; repeatable, in order.",
    ),
]
MoreTestData = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE",
        help="Further test data: a file, a folder, a glob, or a URL; repeatable, in order.",
    ),
]
LogitsData = Annotated[
    list[str],
    typer.Argument(
        help="Logits, labels are not needed; a file, a folder, a glob, a URL such as "
        "s3://bucket/folder, or several of these."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Where several files are read: threads:N, processes:N, local:N for a cluster of Dask "
        "on this machine, tcp://HOST:PORT of its scheduler; RECALIB_CLUSTER by default.",
    ),
]
LogitsFile = Annotated[Path, typer.Argument(help="Logits; labels are not needed.")]
Task = Annotated[
    Literal["multiclass", "multilabel"],
    typer.Option(
        help="multilabel: rows have any number of labels; labels are zeros and ones (N, K), in "
        "any format but .csv."
    ),
]
CalibratorFile = Annotated[Path, typer.Argument(help="A parameter file.")]
ModelOutput = Annotated[
    str | None,
    typer.Option("--from", help="The output of the model to calibrate, if it has several."),
]
ModelOutputKind = Annotated[
    Literal["logits", "probabilities"],
    typer.Option(help="What that output holds; it is never guessed from the values."),
]
OutputFile = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
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
        metavar="NAME",
        help="The name of the array or column of labels, by default `labels`, `label`, `y_true` "
        "or `ground_truth`; of an .npy file of scores, the .npy file of labels.",
    ),
]
ClassNames = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Names of the classes, in order, that labels of a table may have; of two classes the "
        "last is class 1, whose score one column holds. By default the names in --scores.",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="Between the columns of a .csv file: , ; | or tab. By default the one in its first "
        "line.",
    ),
]
Segments = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns of segments of rows, such as a country or a device, of an .npz, .csv or "
        ".parquet file. Those of several columns overlap.",
    ),
]
MetricNames = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="The metrics to show, as docs/metrics.md names them. By default a few; in JSON all.",
    ),
]
AllMetrics = Annotated[bool, typer.Option("--all", help="Show all metrics.")]
ModelName = Annotated[str, typer.Argument(help="The model's name.")]
ServerUrl = Annotated[
    str,
    typer.Option(
        help="The server's URL, such as http://127.0.0.1:8000; by default RECALIB_SERVER.",
        envvar="RECALIB_SERVER",
        show_envvar=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(help="Promote also if the rows do not look like logits of the model."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="The API key, if the server requires one; by default RECALIB_KEY."),
]
