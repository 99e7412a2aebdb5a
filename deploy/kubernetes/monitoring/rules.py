"""Print the rules of deploy/prometheus as a PrometheusRule.

python deploy/kubernetes/monitoring/rules.py | kubectl apply -f -

The output is not committed, so the rules exist once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

_RULES = Path(__file__).resolve().parents[2] / "prometheus"


def resource() -> dict[str, Any]:
    """Return a PrometheusRule with the groups of both files."""
    files = [_RULES / name for name in ("recording.yml", "alerts.yml")]
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "recalib",
            "namespace": "recalib",
            "labels": {"app.kubernetes.io/name": "recalib"},
        },
        "spec": {"groups": groups},
    }


if __name__ == "__main__":
    yaml.safe_dump(resource(), sys.stdout, sort_keys=False)
