"""`recalib calibrate`: calibrate a file of logits on a server."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import typer

from recalib.cli import arguments, options
from recalib.reporting.terminal import progress, show


def calibrate(
    data: options.LogitsFile,
    server: options.ServerUrl,
    model: Annotated[str, typer.Option(help="The model's name on the server.")],
    output: options.OutputFile,
    calibrator: Annotated[
        str, typer.Option(help="A version, or an alias of a version.")
    ] = "champion",
    input: options.InputKind = "logits",
    sets: Annotated[
        bool, typer.Option(help="Also write the prediction sets of a version that has them.")
    ] = False,
    accepted: Annotated[
        bool, typer.Option(help="Also write which rows a version with a rejection rule accepts.")
    ] = False,
    scores: options.Scores = None,
    separator: options.Separator = None,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Calibrate logits on a server.

    The output file has `probabilities`, with --sets `sets` and with --accepted `accepted`; a .csv
    or .parquet file also has the other columns of a table, such as ids.

    The rows count as traffic of the model, without labels: for rows of the past, use
    `recalib apply`, or a batch.
    """
    from recalib.client import Client, PermissionDeniedError
    from recalib.files.answers import check_answer_path, other_columns, write_answers

    check_answer_path(output)
    arguments.check_output_path("output", output, data)
    with Client(server, api_key=key) as client, progress("calibrate", quiet=json_output) as update:
        update("reading")
        selection = arguments.selection_of(scores, separator=separator)
        names = None
        with suppress(PermissionDeniedError):  # a key for predictions alone
            names = client.get_model(model).labels
        rows = arguments.read_file(data, selection, names, input=input, labels="optional")
        update(f"asking {server}")
        answer = client.predict(
            model, rows.logits, calibrator=calibrator, input=input, ids=0, sets=sets,
            accepted=accepted,
        )  # fmt: skip
        probabilities = answer.probabilities
        arrays: dict[str, Any] = {"probabilities": probabilities}
        if answer.sets is not None:
            arrays["sets"] = answer.sets
        if answer.accepted is not None:
            arrays["accepted"] = answer.accepted
        is_table = output.suffix != ".npz"
        others = other_columns(data, input, selection, names) if is_table else None
        write_answers(output, names, others, **arrays)
    n, k = probabilities.shape
    text = f"saved {n} rows of {k} {' and '.join(arrays)} to {output}"
    show({"output": str(output), "rows": n, "classes": k}, text, json_output=json_output)
