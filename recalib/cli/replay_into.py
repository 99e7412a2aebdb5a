"""`recalib replay --into`: load a log of predictions into the monitoring of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from recalib.core.time_text import time_text
from recalib.errors import InputError
from recalib.reporting.terminal import narrow_table, print_json, progress, say

#: Parameters that only `--into` needs, and parameters that it may have.
_OWN = ("server", "key", "version", "to_now")
_SHARED = ("log", "into", "json_output")


def describe_times(times: Mapping[str, str]) -> str:
    """Return the forms of the times of a log in words."""
    return ", ".join(f"{name} as {form}" for name, form in times.items())


def check_options(context: typer.Context) -> None:
    """Check which options of `recalib replay` are used together.

    Raises
    ------
    InputError: an option of the local replay with `--into`, an option of `--into` without it, or
        `--into` without `--server`.
    """
    has_model = context.params["into"] is not None
    for name in context.params:
        source = context.get_parameter_source(name)
        if name in _SHARED or source is None or source.name != "COMMANDLINE":
            continue
        option = f"--{name.replace('_', '-')}"
        if has_model and name not in _OWN:
            accepted = "the monitoring settings of the model, without this option"
            raise InputError(option, found="used with --into", accepted=accepted)
        if not has_model and name in _OWN:
            raise InputError(option, found="used without --into", accepted="--into MODEL")
    if has_model and context.params["server"] is None:
        accepted = "the server's URL, such as http://127.0.0.1:8000"
        raise InputError("--server", found="none, with --into", accepted=accepted)


def replay_into(
    log: Sequence[str],
    model: str,
    server: str,
    version: str,
    *,
    key: str | None,
    to_now: bool,
    json_output: bool,
) -> None:
    """Upload a log, wait for its replay, and show the changes of state."""
    from recalib.client import Client
    from recalib.files.fragments import is_single_file

    if not is_single_file(log):
        found = ", ".join(log)[:200]
        raise InputError("log", found=found, accepted="one local file, with --into")

    with Client(server, api_key=key) as client, progress("replay", quiet=json_output) as update:

        def report(_: float, text: str) -> None:
            update(text)

        queued_job = client.replay(model, log[0], version=version, to_now=to_now, progress=report)
        job = client.wait(queued_job, progress=report)
    result: dict[str, Any] = job.result or {}
    if json_output:
        print_json({"model": model, "job": job.id} | result)
        return
    title = f"{model}, version {result['version']}: replayed events"
    table = narrow_table(title, "when", "state", "why")
    for event in result["events"]:
        table.add_row(time_text(event["time"]), event["state"], event["reason"])
    say(table)
    say(
        f"{result['cohorts']:,} cohorts of predictions until {time_text(result['through'])},"
        f" {result['history']:,} of them in the history: {result['rows']:,} predictions,"
        f" {result['labelled']:,} labels; {result['late']:,} labels came too late, and"
        f" {result['immature']:,} predictions are too young, and are not used"
    )
    say(f"times: {describe_times(result['times'])}")
    say(f"now {result['state']}; recalib monitoring {model} --server {server} --history 20")
