"""A calibrator in MLflow: tracking, registry, generic interface; see `test_mlflow.py`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

import recalib
import recalib.mlflow
from tests.fitting.conftest import draw

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "mlflow.md"


def main(url: str, output: str) -> None:
    """Log a calibrator and its evaluation; write what MLflow gives back.

    Parameters
    ----------
    url: of the tracking server.
    output: the file of the results.
    """
    mlflow.set_tracking_uri(url)
    logits, labels = draw(300, 4, 3.0)
    calibrator = recalib.fit(logits, np.array(list("abcd"))[labels], "vector")
    names = calibrator.predict(logits)
    with mlflow.start_run() as run:
        info = recalib.mlflow.log_model(calibrator, registered_model_name="digits")
        estimates = recalib.mlflow.log_evaluation(labels, names, prefix="test_")
    client = mlflow.MlflowClient()
    model = recalib.mlflow.load_model("models:/digits/1")
    generic = mlflow.pyfunc.load_model(info.model_uri)
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri))
    recorded = client.get_run(run.info.run_id).data.metrics
    results: dict[str, Any] = {
        "equal": model == calibrator,
        "array": generic.predict(logits[:5]).tolist(),
        "frame": np.asarray(generic.predict(pd.DataFrame(logits[:5]))).tolist(),
        "expected": calibrator.predict(logits[:5]).tolist(),
        "logits": logits[:5].tolist(),
        "recorded": [recorded["test_ece"], recorded["test_ece_low"], recorded["test_ece_high"]],
        "ece": [estimates["ece"].value, estimates["ece"].low, estimates["ece"].high],
        "artifacts": [file.path for file in client.list_artifacts(run.info.run_id)],
        "signature": info.signature.to_dict(),
        "files": sorted(path.name for path in folder.iterdir()),
    }
    (example,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    exec(example, {"calibrator": calibrator, "labels": labels, "logits": logits})  # noqa: S102
    Path(output).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
