"""Networks trained by a server's worker: asking for a run, and fetching what it delivered."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from recalib.client.operations import Plan, Request, Session
from recalib.client.results import Job
from recalib.client.retry import fetch, new_key, path, succeed

__all__ = ["download_run_file", "train"]


def train(session: Session, recipe: Mapping[str, Any]) -> Plan[Job]:
    """Ask for a training run; return the job that does it.

    The finished job's `result` has a `summary`, the `files` that can be downloaded, and with a
    model to calibrate the `fit_job` that follows.

    Parameters
    ----------
    recipe: as docs/training.md describes it; its files lie in the worker's folder of data.

    Raises
    ------
    RefusedError: a recipe that cannot be one.
    MissingError: no such model to calibrate.
    """
    place = path("training-runs")
    return fetch(session, Job, "POST", place, json=dict(recipe), headers=new_key())


def download_run_file(
    session: Session, job: Job | str, name: str, destination: str | PathLike[str]
) -> Plan[int]:
    """Write a file that a run delivered, whole or not at all, and return its bytes.

    Parameters
    ----------
    name: such as `weights.safetensors`; the job's `result` lists them under `files`.

    Raises
    ------
    MissingError: no such run or file, or none yet.
    InputError: a file that cannot be written.
    """
    from recalib.files import write_atomically

    owner = job if isinstance(job, str) else job.id
    answer = yield from succeed(
        session, Request("GET", path("training-runs", owner, "files", name))
    )
    write_atomically(Path(destination), answer.body)
    return len(answer.body)
