"""An example of each JSON body, by the name of the operation, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_INFER = {
    "inputs": [{"name": "logits", "shape": [1, 3], "datatype": "FP32", "data": [2.1, 0.3, -1.0]}]
}
_DETAILS = {"description": "Photos of May", "tags": ["approved"]}

EXAMPLES: dict[str, Any] = {
    "calibrate": {"logits": [[2.1, 0.3, -1.0]]},
    "v2_infer": _INFER,
    "v2_infer_version": _INFER,
    "add_labels": [{"prediction_id": "AQABAAAAAAA", "label": 2}],
    "add_observations": {"logits": [[2.1, 0.3, -1.0]], "labels": [0], "times": [1764000000.0]},
    "add_traffic": {
        "buckets": [
            {"started_at": 1764000000.0, "predictions": [3, 9], "confidence_sums": [1.4, 8.5]}
        ]
    },
    "create_model": {"name": "resnet", "classes": ["ant", "bee", "cat"]},
    "update_model": _DETAILS,
    "set_monitoring": {"objective": 0.05, "maturity_seconds": 86400.0, "segments": ["eu", "us"]},
    "upload_dataset": {"logits": [[2.1, 0.3, -1.0], [0.2, 1.9, 0.4]], "labels": [0, 1]},
    "update_dataset": _DETAILS,
    "create_calibrator": {"dataset": "val", "map": "auto"},
    "update_calibrator": _DETAILS,
    "set_alias": {"version": 2, "reason": "Better on the photos of May"},
    "create_evaluation": {"dataset": "test", "versions": ["identity", "champion", 3]},
    "create_batch": {"dataset": "test", "version": "champion", "format": "parquet"},
    "create_training_run": {
        "name": "shapes",
        "data": {"source": "shapes", "options": {"train": 300, "validation": 100, "size": 16}},
        "model": {"name": "segmenter"},
        "epochs": 4,
    },
    "create_webhook": {"url": "https://example.com/events", "types": ["monitoring", "job.failed"]},
    "update_webhook": {"enabled": True},
    "rotate_webhook_secret": {"overlap_seconds": 86400.0},
}
