"""Calibrate and evaluate rows in Ray Data; prints the results as JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
import ray

import recalib

calibrator = recalib.load(sys.argv[1])
rows = json.load(sys.stdin)
logits, labels = np.array(rows["logits"], np.float32), np.array(rows["labels"])

ray.init(num_cpus=4, object_store_memory=600 << 20, include_dashboard=False)
dataset = ray.data.from_items(
    [
        {"row": i, "logits": z, "label": y}
        for i, (z, y) in enumerate(zip(logits, labels, strict=True))
    ],
    override_num_blocks=3,
)
answer = {}
for batch_format in ("numpy", "pyarrow", "pandas"):
    options = {"batch_format": batch_format, "batch_size": 50}
    calibrated = dataset.map_batches(calibrator.map_batches, **options).materialize()
    ordered = sorted(calibrated.take_all(), key=lambda row: row["row"])
    evaluation = recalib.StreamingEvaluation(logits.shape[1])
    parts = calibrated.map_batches(evaluation.map_batches, **options).take_all()
    evaluations = [recalib.StreamingEvaluation.from_bytes(row["evaluation"]) for row in parts]
    answer[batch_format] = {
        "probabilities": [list(map(float, row["probabilities"])) for row in ordered],
        "parts": len(parts),
        "metrics": {name: m.value for name, m in evaluation.merge(*evaluations).finish().items()},
    }
sys.stdout.write(json.dumps(answer) + "\n")
