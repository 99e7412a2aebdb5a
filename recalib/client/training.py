"""Training runs on a server: start one, and download its files."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from recalib.client.downloads import save
from recalib.client.jobs import id_of
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path
from recalib.contract.jobs import Job


def train(session: Session, recipe: Mapping[str, Any]) -> Flow[Job]:
    """Start a training run; return its job.

    The `result` of the finished job has a `summary` and the `files` that can be downloaded. If the
    recipe names a model to calibrate, it also has the `fit_job` that follows.

    Parameters
    ----------
    recipe: see docs/training.md; its files are in the data folder of the worker.

    Raises
    ------
    InvalidRequestError: the recipe is invalid.
    ResourceNotFoundError: the model to calibrate does not exist.
    """
    return fetch(session, Job, "POST", path("training-runs"), json=dict(recipe))


def download_run_file(
    session: Session, job: Job | str, name: str, destination: str | PathLike[str]
) -> Flow[int]:
    """Download a file of a run, atomically, and return its size in bytes.

    Parameters
    ----------
    name: such as `weights.safetensors`; the job's `result` lists the names under `files`.

    Raises
    ------
    ResourceNotFoundError: no such run or file, or the file does not exist yet.
    InputError: the destination cannot be written.
    """
    return save(session, path("training-runs", id_of(job), "files", name), destination)
