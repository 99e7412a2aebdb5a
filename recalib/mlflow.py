"""An MLflow flavour for calibrators: save, log, load and serve them, without pickle.

A model is a folder with the `.calib` file, and a file `MLmodel` that names this module as loader.
Needs the package `mlflow`.

>>> import recalib.mlflow                                          # doctest: +SKIP
>>> with mlflow.start_run():                                       # doctest: +SKIP
...     info = recalib.mlflow.log_model(calibrator)
...     recalib.mlflow.log_evaluation(labels, calibrator.predict(logits))
>>> recalib.mlflow.load_model(info.model_uri).predict(logits)      # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

import recalib
from recalib.api import evaluate, load, reliability_diagram
from recalib.calibrator import Calibrator
from recalib.core.packages import optional_packages
from recalib.errors import InputError
from recalib.metrics.evaluation import named_values

with optional_packages("recalib.mlflow"):
    import mlflow
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.models.model import ModelInfo
    from mlflow.types import Schema, TensorSpec

if TYPE_CHECKING:
    from recalib.metrics import Estimate

__all__ = ["FLAVOR_NAME", "load_model", "log_evaluation", "log_model", "save_model"]

FLAVOR_NAME = "recalib"
_CALIBRATOR, _REQUIREMENTS, _PYTHON_ENV = "calibrator.calib", "requirements.txt", "python_env.yaml"

_Dtype = Literal["float32", "float64"]


def save_model(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    *,
    dtype: _Dtype = "float64",
    metadata: dict[str, Any] | None = None,
    mlflow_model: Model | None = None,
) -> None:
    """Save a calibrator as an MLflow model in a new folder.

    Parameters
    ----------
    calibrator: a result of `recalib.fit`, or of `recalib.load`.
    path: the folder, which does not exist or is empty.
    dtype: of the input in the signature, [−1, K]. MLflow refuses arrays of another dtype, and
        converts the numbers of requests.
    metadata: of the model, for MLflow.
    mlflow_model: the description to complete; `log_model` passes it.

    Raises
    ------
    InputError: the folder is not empty, or `dtype` is another.
    """
    if dtype not in ("float32", "float64"):
        raise InputError("dtype", found=repr(dtype), accepted="float32 or float64")
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise InputError("path", found=f"{folder}, which is not empty", accepted="a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    calibrator.save(folder / _CALIBRATOR)
    library, card = recalib.__version__, calibrator.card
    model = Model() if mlflow_model is None else mlflow_model
    tensor = np.dtype(dtype), (-1, card.classes)
    model.signature = ModelSignature(
        Schema([TensorSpec(*tensor, name=None)]), Schema([TensorSpec(*tensor, name=None)])
    )
    if metadata is not None:
        model.metadata = metadata
    pyfunc.add_to_model(model, __name__, data=_CALIBRATOR, python_env=_PYTHON_ENV)
    model.add_flavor(
        FLAVOR_NAME, data=_CALIBRATOR, recalib_version=library, map=card.map, input=card.input
    )
    (folder / _REQUIREMENTS).write_text(f"mlflow=={mlflow.__version__}\nrecalib=={library}\n")
    # JSON is YAML.
    environment = {
        "python": platform.python_version(),
        "build_dependencies": ["pip"],
        "dependencies": [f"-r {_REQUIREMENTS}"],
    }
    (folder / _PYTHON_ENV).write_text(json.dumps(environment))
    model.save(str(folder / "MLmodel"))


def log_model(
    calibrator: Calibrator,
    name: str = "calibrator",
    *,
    registered_model_name: str | None = None,
    dtype: _Dtype = "float64",
    metadata: dict[str, Any] | None = None,
) -> ModelInfo:
    """Log a calibrator in the active run, or in a new one, and return MLflow's description.

    Parameters
    ----------
    name: of the model in the run.
    registered_model_name: the name in MLflow's model registry, if it becomes a version there.
    dtype, metadata: as in `save_model`.
    """
    return Model.log(
        artifact_path=None,
        flavor=sys.modules[__name__],
        name=name,
        registered_model_name=registered_model_name,
        calibrator=calibrator,
        dtype=dtype,
        metadata=metadata,
    )


def load_model(model_uri: str) -> Calibrator:
    """Return the calibrator of an MLflow model.

    Parameters
    ----------
    model_uri: as in MLflow, such as `models:/resnet/1`, `runs:/ID/calibrator` or a path.

    Raises
    ------
    InputError: the model has another flavour.
    CorruptError: the file of the calibrator is damaged.
    """
    folder = Path(mlflow.artifacts.download_artifacts(model_uri))
    flavors = Model.load(str(folder)).flavors
    if FLAVOR_NAME not in flavors:
        found = ", ".join(flavors)
        raise InputError("model_uri", found=f"a model of {found}", accepted=f"one of {FLAVOR_NAME}")
    return load(folder / flavors[FLAVOR_NAME]["data"])


def log_evaluation(
    labels: ArrayLike,
    probabilities: Any = None,
    *,
    logits: Any = None,
    prefix: str = "",
    metrics: Iterable[str] | None = None,
    class_labels: tuple[str, ...] | None = None,
    pictures: bool = True,
) -> dict[str, Estimate]:
    """Log metrics and a reliability diagram in the active run, and return the metrics.

    A metric has its name, and its interval is `NAME_low` and `NAME_high`. The diagram is the
    artifact `reliability_diagram.png`, and as a page `reliability_diagram.html`.

    Parameters
    ----------
    labels, probabilities, logits, metrics, class_labels: as in `recalib.evaluate`.
    prefix: of the names, such as `test_`.
    pictures: whether the diagram is logged; needs `recalib[pictures]`.

    Raises
    ------
    InputError: as in `recalib.evaluate`.
    """
    estimates: dict[str, Estimate] = evaluate(
        labels,
        probabilities,
        logits=logits,
        metrics=metrics,
        class_labels=class_labels,
        intervals=True,
    )
    values = named_values(estimates)
    mlflow.log_metrics({f"{prefix}{name}": value for name, value in values.items()})
    if pictures:
        picture = reliability_diagram(labels, probabilities, logits=logits)
        with TemporaryDirectory() as folder:
            for suffix in (".png", ".html"):
                picture.save(Path(folder, f"{prefix}reliability_diagram{suffix}"))
            mlflow.log_artifacts(folder)
    return estimates


class _PyFuncModel:
    """The interface of MLflow's generic models."""

    def __init__(self, calibrator: Calibrator) -> None:
        self._calibrator = calibrator

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Return probabilities (N, K) for what the calibrator was fitted on, (N, K)."""
        if params:
            raise InputError("params", found=", ".join(params), accepted="none")
        return self._calibrator.predict(data)


def _load_pyfunc(path: str) -> _PyFuncModel:
    """Return the model for MLflow's generic interface; MLflow calls this function by its name."""
    return _PyFuncModel(load(path))
