"""Permission rules of all operations, by REST operation id and RPC name.

A test fails for a route or an RPC without a rule, and the server refuses it.
"""

from __future__ import annotations

from typing import Literal

#: A scope, any valid key ("any"), or no key ("open").
Rule = Literal["predict", "label", "fit", "admin", "any", "open"]

#: The RPC that describes the server's RPCs.
REFLECTION = "server_reflection_info"

RULES: dict[str, Rule] = {
    # Probes have no keys, and learn only whether the server lives.
    "livez": "open",
    "readyz": "open",
    "v2_live": "open",
    "v2_ready": "open",
    "server_live": "open",
    "server_ready": "open",
    "check": "open",
    "watch": "open",
    "list": "open",
    # Not open: metrics name models.
    "metrics": "any",
    "v2_server": "any",
    "server_metadata": "any",
    # Open with the setting `public_docs`, like `DOCS_PATHS`.
    REFLECTION: "any",
    "calibrate": "predict",
    "calibrate_stream": "predict",
    "v2_infer": "predict",
    "v2_infer_version": "predict",
    "v2_model": "predict",
    "v2_model_version": "predict",
    "v2_model_ready": "predict",
    "v2_model_version_ready": "predict",
    "model_infer": "predict",
    "model_metadata": "predict",
    "model_ready": "predict",
    "add_labels": "label",
    # As for an upload: a fit may use these logits.
    "add_observations": "fit",
    "add_traffic": "fit",
    "list_models": "fit",
    "get_model": "fit",
    "upload_dataset": "fit",
    "update_dataset": "fit",
    "delete_dataset": "fit",
    "get_dataset": "fit",
    "get_dataset_content": "fit",
    "list_datasets": "fit",
    "create_calibrator": "fit",
    "update_calibrator": "fit",
    "delete_calibrator": "fit",
    "get_calibrator": "fit",
    "list_calibrators": "fit",
    "get_calibrator_parameters": "fit",
    "get_calibrator_onnx": "fit",
    "create_batch": "fit",
    "delete_batch": "fit",
    "get_batch": "fit",
    "get_batch_content": "fit",
    "list_batches": "fit",
    "create_evaluation": "fit",
    "delete_evaluation": "fit",
    "get_evaluation": "fit",
    "get_evaluation_report": "fit",
    "list_evaluations": "fit",
    "list_aliases": "fit",
    "get_alias_history": "fit",
    "get_monitoring": "fit",
    "list_monitoring_history": "fit",
    "get_job": "fit",
    "list_jobs": "fit",
    "list_events": "fit",
    "list_model_events": "fit",
    "stream_events": "fit",
    "cancel_job": "fit",
    "create_refit": "fit",
    "create_replay": "admin",
    "create_training_run": "fit",
    "delete_training_run": "fit",
    "get_training_run_file": "fit",
    "create_model": "admin",
    "update_model": "admin",
    "delete_model": "admin",
    "delete_alias": "admin",
    "set_alias": "admin",
    "list_audit": "admin",
    "set_monitoring": "admin",
    "drop_candidate": "admin",
    "create_webhook": "admin",
    "list_webhooks": "admin",
    "get_webhook": "admin",
    "update_webhook": "admin",
    "rotate_webhook_secret": "admin",
    "delete_webhook": "admin",
    "list_deliveries": "admin",
    "redeliver": "admin",
}

#: Operations that change state; refused attempts are written to the audit trail.
MUTATING = frozenset(
    {
        "upload_dataset",
        "update_dataset",
        "delete_dataset",
        "create_calibrator",
        "create_batch",
        "delete_batch",
        "create_evaluation",
        "update_calibrator",
        "delete_evaluation",
        "delete_calibrator",
        "cancel_job",
        "create_refit",
        "create_replay",
        "create_training_run",
        "delete_training_run",
        "create_model",
        "update_model",
        "delete_model",
        "delete_alias",
        "set_alias",
        "set_monitoring",
        "drop_candidate",
        "create_webhook",
        "update_webhook",
        "rotate_webhook_secret",
        "delete_webhook",
        "redeliver",
    }
)

#: Operations whose model is known only after a lookup: their handlers check it.
MODEL_CHECKED_LATER = frozenset(
    {
        "get_job",
        "list_jobs",
        "list_events",
        "stream_events",
        "create_webhook",
        "list_webhooks",
        "get_webhook",
        "update_webhook",
        "rotate_webhook_secret",
        "delete_webhook",
        "list_deliveries",
        "redeliver",
        "cancel_job",
        "create_training_run",
        "delete_training_run",
        "get_training_run_file",
        "list_audit",
    }
)

#: Paths of the open operations.
OPEN_PATHS = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})

#: Paths of the OpenAPI document and its pages: any valid key, or open with `public_docs`.
DOCS_PATHS = frozenset(
    {
        "/",
        "/openapi.json",
        "/docs",
        "/docs/oauth2-redirect",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        "/docs/redoc.standalone.js",
        "/docs/favicon.png",
        "/redoc",
    }
)
