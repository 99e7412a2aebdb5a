"""Other libraries with the same maps, behind a common signature.

They are installed into the user's cache, at the end of the import path, so installed packages keep
their versions. Each runs in this process, on the same rows, as its documentation says. scikit-learn
is already a dependency.

Legend: N rows, K classes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Fitted:
    """The result of a fit; it is evaluated after the measurement."""

    #: Returns the calibrated probabilities (N, K) of the fitted rows.
    probabilities: Callable[[], Rows]
    #: Returns the penalty that the fit adds to its negative log-likelihood.
    penalty: Callable[[], float] = lambda: 0.0

    def objective(self, labels: Labels) -> float:
        """Return the mean negative log-likelihood of the rows, and the penalty, in nats."""
        return -float(np.log(self.probabilities()[np.arange(len(labels)), labels]).mean()) + (
            self.penalty()
        )


Fit = Callable[[Rows, Labels], Fitted]

_LIST = Path(__file__).with_name("peers.txt")


def peers_of(map: str) -> dict[str, Fit]:
    """Return the libraries that have `map`, by name; print those that are unavailable.

    Each is imported here, because the import takes seconds and is not part of a fit.
    """
    peers = {}
    for library, (module, fits) in PEERS.items():
        if map not in fits:
            continue
        problem = _missing(library, module)
        if problem:
            print(f"{library}: not installed ({problem})", flush=True)
        else:
            peers[library] = fits[map]
    return peers


@cache
def _missing(library: str, module: str) -> str:
    """Return why `module` of `library` cannot be imported, or an empty string."""
    try:
        if library != "scikit-learn":
            install(_LIST)
        if library == "torch-uncertainty":
            _only_scalers()
        import_module(module)
    except Exception as error:  # an import may raise any type
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


@cache
def install(listed: Path) -> None:
    """Install the requirements in a file, once for each content, and make them importable."""
    content = listed.read_bytes() + sys.version.encode()
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cached / "recalib" / f"peers-{hashlib.sha256(content).hexdigest()[:12]}"
    stamp = folder / ".complete"
    if not stamp.is_file():
        print(f"installing {listed.name} ...", flush=True)
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
        result = subprocess.run(
            [*command, "--target", folder, "-r", listed],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            print(result.stderr.strip(), flush=True)
        else:
            stamp.touch()
    sys.path.append(str(folder))


def bare_packages(*names: str) -> None:
    """Make modules of packages importable without what the packages import themselves."""
    for name in names:
        package = types.ModuleType(name)
        relative = name.replace(".", "/")
        package.__path__ = [f"{path}/{relative}" for path in sys.path]
        sys.modules[name] = package


def _only_scalers() -> None:
    """Make the scalers of torch-uncertainty importable without the rest of the package.

    The package imports Lightning and torchvision, which the scalers do not need.
    """
    bare_packages("torch_uncertainty", "torch_uncertainty.post_processing")
    base = import_module("torch_uncertainty.post_processing.abstract")
    sys.modules["torch_uncertainty.post_processing"].PostProcessing = base.PostProcessing  # type: ignore[attr-defined]
    logging.getLogger().addFilter(lambda record: "model is None" not in record.getMessage())


class FixedLogits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose decision function is its input."""

    def fit(self, x: Rows, y: Labels) -> FixedLogits:
        self.classes_ = np.arange(x.shape[1])
        return self

    def predict(self, x: Rows) -> NDArray[np.intp]:
        return x.argmax(axis=1)

    def decision_function(self, x: Rows) -> Rows:
        return x


def _sklearn_temperature(logits: Rows, labels: Labels) -> Fitted:
    frozen = FrozenEstimator(FixedLogits().fit(logits, labels))
    fitted = CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels)
    return Fitted(lambda: np.asarray(fitted.predict_proba(logits)))


def _probmetrics(module: str, name: str) -> Fit:
    def fit(logits: Rows, labels: Labels) -> Fitted:
        import torch

        calibrators = import_module(f"probmetrics.calibrators.{module}")
        distribution = import_module("probmetrics.distributions").CategoricalLogits(
            torch.as_tensor(logits)
        )
        calibrator = getattr(calibrators, name)()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator.fit_torch(distribution, torch.as_tensor(labels))

        def predict() -> Rows:
            return calibrator.predict_proba_torch(distribution).get_probs().numpy()

        return Fitted(predict)

    return fit


def _netcal_temperature(logits: Rows, labels: Labels) -> Fitted:
    # It takes probabilities; with float32, it would return a temperature of 1.
    probabilities = scipy.special.softmax(logits, axis=1)
    scaling = import_module("netcal.scaling").TemperatureScaling()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaling.fit(probabilities, labels)
    return Fitted(lambda: np.asarray(scaling.transform(probabilities)))


def _package_venn_abers(logits: Rows, labels: Labels) -> Fitted:
    probabilities = scipy.special.softmax(logits, axis=1)
    predictor = import_module("venn_abers").VennAbers()
    predictor.fit(probabilities, labels)
    p, _ = predictor.predict_proba(probabilities)
    return Fitted(lambda: np.asarray(p))


def _torch_uncertainty(name: str, **options: Any) -> Fit:
    def fit(logits: Rows, labels: Labels) -> Fitted:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        scalers = import_module("torch_uncertainty.post_processing.calibration")
        # Its parameters are float32, so the logits must be float32.
        inputs = torch.as_tensor(logits, dtype=torch.float32)
        classes = {} if name == "TemperatureScaler" else {"num_classes": logits.shape[1]}
        scaler = getattr(scalers, name)(**classes, **options)
        rows = TensorDataset(inputs, torch.as_tensor(labels))
        loader = DataLoader(rows, batch_size=None, sampler=[slice(None)])
        scaler.fit(loader, progress=False)

        def predict() -> Rows:
            with torch.no_grad():
                probabilities: Rows = torch.softmax(scaler(inputs).double(), dim=1).numpy()
            return probabilities

        def penalty() -> float:
            return _odir(scaler, **options) if name == "DirichletScaler" else 0.0

        return Fitted(predict, penalty)

    return fit


def _odir(scaler: Any, lambda_reg: float, mu_reg: float) -> float:
    matrix, bias = (tensor.detach().double().numpy() for tensor in scaler.inv_temperature)
    classes = len(bias)
    off_diagonal = (matrix**2).sum() - (matrix.diagonal() ** 2).sum()
    return float(lambda_reg * off_diagonal / (classes * (classes - 1)) + mu_reg * (bias**2).mean())


#: For each library, the module to import, and its fits by the name of our map.
PEERS: dict[str, tuple[str, dict[str, Fit]]] = {
    "scikit-learn": ("sklearn.calibration", {"temperature": _sklearn_temperature}),
    "probmetrics": (
        "probmetrics.calibrators.logistic",
        {
            "temperature": _probmetrics("temperature_scaling", "TemperatureScalingCalibrator"),
            "vector": _probmetrics("logistic", "VectorScalingCalibrator"),
            "structured_vector": _probmetrics("logistic", "SVSCalibrator"),
            "structured_matrix": _probmetrics("logistic", "SMSCalibrator"),
        },
    ),
    "torch-uncertainty": (
        "torch_uncertainty.post_processing.calibration",
        {
            "temperature": _torch_uncertainty("TemperatureScaler"),
            # Despite its name, it has no intercept.
            "class_temperature": _torch_uncertainty("VectorScaler"),
            "dirichlet": _torch_uncertainty("DirichletScaler", lambda_reg=100.0, mu_reg=0.1),
        },
    ),
    "netcal": ("netcal.scaling", {"temperature": _netcal_temperature}),
    "venn-abers": ("venn_abers", {"venn_abers": _package_venn_abers}),
}
