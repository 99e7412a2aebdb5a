"""An example of each JSON body, by the name of its schema, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_DETAILS = {"description": "Photos of May", "tags": ["approved"]}

EXAMPLES: dict[str, Any] = {
    "CalibrateRequest": {"logits": [[2.1, 0.3, -1.0]]},
    "InferRequest": {
        "inputs": [
            {"name": "logits", "shape": [1, 3], "datatype": "FP32", "data": [2.1, 0.3, -1.0]}
        ]
    },
    "LateLabel": [{"prediction_id": "AQABAAAAAAA", "label": 2}],
    "Observations": {"logits": [[2.1, 0.3, -1.0]], "labels": [0], "times": [1764000000.0]},
    "TrafficSums": {
        "buckets": [
            {"started_at": 1764000000.0, "predictions": [3, 9], "confidence_sums": [1.4, 8.5]}
        ]
    },
    "ModelCreate": {"name": "resnet", "classes": ["ant", "bee", "cat"]},
    "ModelUpdate": _DETAILS,
    "MonitoringSettings": {
        "objective": 0.05,
        "maturity_seconds": 86400.0,
        "segments": ["eu", "us"],
    },
    "Data": {"logits": [[2.1, 0.3, -1.0], [0.2, 1.9, 0.4]], "labels": [0, 1]},
    "DetailsUpdate": _DETAILS,
    "CalibratorCreate": {"dataset": "val", "map": "auto"},
    "AliasSet": {"version": 2, "reason": "Better on the photos of May"},
    "EvaluationCreate": {"dataset": "test", "versions": ["identity", "champion", 3]},
    "BatchCreate": {"dataset": "test", "version": "champion", "format": "parquet"},
    "Recipe": {
        "name": "shapes",
        "data": {"source": "shapes", "options": {"train": 300, "validation": 100, "size": 16}},
        "model": {"name": "segmenter"},
        "epochs": 4,
    },
    "WebhookCreate": {"url": "https://example.com/events", "types": ["monitoring", "job.failed"]},
    "WebhookChange": {"enabled": True},
    "SecretRotation": {"overlap_seconds": 86400.0},
}
