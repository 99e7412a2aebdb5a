"""Packages that an extra of Recalib installs, and the error where one is missing.

>>> with optional_packages("recalib.torch"):  # doctest: +SKIP
...     import torch
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from recalib.errors import PackageError

#: What `pip install` needs for each package that not every installation has, by its import name.
REQUIREMENTS = {
    "PIL": "recalib[train]",
    "alembic": "recalib[serve]",
    "altair": "recalib[pictures]",
    "confluent_kafka": "recalib[kafka]",
    "dask": "recalib[cluster]",
    "distributed": "recalib[cluster]",
    "fastapi": "recalib[serve]",
    "gcsfs": "recalib[gcs]",
    "google": "recalib[serve]",
    "grpc": "recalib[serve]",
    "httpx2": "recalib[client]",
    "jwt": "recalib[serve]",
    "lightning_fabric": "recalib[train]",
    "mlflow": "mlflow",
    "onnx": "recalib[onnx]",
    "onnxruntime": "recalib[onnx]",
    "opentelemetry": "recalib[telemetry]",
    "optuna": "recalib[tune]",
    "orjson": "recalib[serve]",
    "prometheus_client": "recalib[serve]",
    "psycopg": "recalib[serve]",
    "pyarrow": "recalib[tables]",
    "pytorch_lightning": "recalib[lightning]",
    "s3fs": "recalib[s3]",
    "simdjson": "recalib[serve]",
    "sklearn": "recalib[sklearn]",
    "sqlalchemy": "recalib[serve]",
    "starlette": "recalib[serve]",
    "torch": "recalib[fit]",
    "torchmetrics": "recalib[torchmetrics]",
    "uvicorn": "recalib[serve]",
    "vl_convert": "recalib[pictures]",
}


@contextmanager
def optional_packages(field: str, requirement: str | None = None) -> Iterator[None]:
    """Turn the failed import of a package of an extra into `PackageError`.

    Parameters
    ----------
    field: what needs the package, in the error.
    requirement: what to install, by default the package's own entry of `REQUIREMENTS`.

    Raises
    ------
    PackageError: a package of `REQUIREMENTS` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in REQUIREMENTS:
            raise
        raise missing_package(field, name, requirement) from None


def missing_package(field: str, package: str, requirement: str | None = None) -> PackageError:
    """Return the error of a package that is not installed; see `optional_packages`."""
    accepted = f"pip install '{requirement or REQUIREMENTS[package]}'"
    return PackageError(field, found=f"no package {package}", accepted=accepted)


def check_installed(field: str, *packages: str, requirement: str | None = None) -> None:
    """Raise `PackageError` for the first package that is not installed, without an import."""
    for package in packages:
        if not is_installed(package):
            raise missing_package(field, package, requirement)


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of its parent
        return False
