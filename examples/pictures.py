"""Draw the pictures of the documentation, from the logits in this folder.

    make pictures

`reliability.svg` shows the test rows of a network before and after temperature scaling.
`timeline.svg` shows the monitor on ten days of their predictions, in random order. From the sixth
day on, the network is another one: its logits are 1.6 times as large, so the calibrator is wrong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import softmax

import recalib

_FOLDER = Path(__file__).resolve().parent
_NETWORK = "cifar10-resnet8-cross-entropy"
_DAY, _DAYS, _DRIFT_DAY, _SHARPER = 86_400.0, 10, 5, 1.6
#: The first prediction, in seconds since 1970: 5 January 2026, 00:00 UTC.
_START = 1_767_571_200.0


def draw(target: Path) -> None:
    """Write the pictures to the folder `target`."""
    validation, test = (
        np.load(_FOLDER / f"{_NETWORK}-{part}.npz") for part in ("validation", "test")
    )
    calibrator = recalib.fit(validation["logits"], validation["labels"], map="temperature")
    logits, labels = test["logits"], test["labels"]
    series = {
        "before": softmax(logits, axis=1),
        "after": calibrator.predict(logits),
    }
    recalib.reliability_diagram(labels, series).save(target / "reliability.svg")
    order = np.random.default_rng(0).permutation(len(labels))
    time = _START + np.linspace(0, _DAYS * _DAY, len(labels), endpoint=False)
    scale = np.where(time < _START + _DRIFT_DAY * _DAY, 1.0, _SHARPER)
    served = calibrator.predict(logits[order] * scale[:, None])
    correct = served.argmax(axis=1) == labels[order]
    result = recalib.monitor(served.max(axis=1), correct, time, calibrator=calibrator)
    recalib.timeline(result, title="ten days of predictions").save(target / "timeline.svg")


if __name__ == "__main__":
    draw(_FOLDER.parent / "docs" / "images")
