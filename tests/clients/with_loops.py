"""Run a loop of docs/training.md with the loggers of its own project; write what they logged.

    python -m tests.clients.with_loops FOLDER lightning|transformers|accelerate

Under torchrun, all processes take part, and without loggers. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_SILENT"] = "true"
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

import torch

from tests.loop_examples import loop_example, run_examples

_LOGGERS = ["tensorboard", "mlflow", "wandb"]
_ONE_PROCESS = "RANK" not in os.environ


def with_lightning() -> None:
    from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    loggers = [TensorBoardLogger("runs"), MLFlowLogger("digits"), WandbLogger(offline=True)]
    code = loop_example("Lightning").replace("Trainer(max_epochs=20", "Trainer(max_epochs=2")
    run_examples(code.replace(", callbacks=[", ", logger=loggers, callbacks=["), loggers=loggers)


def with_transformers() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    model = BertForSequenceClassification(BertConfig(vocab_size=20, intermediate_size=16, **sizes))
    words = torch.randint(1, 20, (141, 6))
    rows = [{"input_ids": row, "labels": int(row[0]) % 3} for row in words]
    loggers = f"report_to={_LOGGERS if _ONE_PROCESS else []}, use_cpu=True, learning_rate=0.01,"
    code = loop_example("transformers").replace("num_train_epochs=20,", "num_train_epochs=2,")
    code = code.replace('save_strategy="epoch",', f'save_strategy="epoch", {loggers}')
    run_examples(code, model=model, train_rows=rows[:40], validation_rows=rows[40:])


def with_accelerate() -> None:
    plain, accelerate = loop_example("Your own loop").split("from accelerate")
    before, loop = plain.split("for epoch in range(5)")
    loop = loop.replace("loss.backward()", "accelerator.backward(loss)")
    loop = loop.replace("recorder.save", "accelerator.log(metrics, step=epoch)\n    recorder.save")
    code = f"{before}\nfrom accelerate{accelerate}\nfor epoch in range(2){loop}"
    code = code if _ONE_PROCESS else code.replace('log_with="all", ', "")
    names = run_examples(code.replace("Accelerator(", "Accelerator(cpu=True, "))
    names["accelerator"].end_training()


def logged(name: str) -> dict[str, Any]:
    """Return the values of a metric in TensorBoard and MLflow, and the text of W&B's files."""
    import mlflow
    import wandb
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    wandb.finish()  # writes the rest
    scalars: list[float] = []
    for folder in sorted({file.parent for file in Path("runs").rglob("events.*")}):
        events = EventAccumulator(str(folder)).Reload()
        for tag in events.Tags()["scalars"]:
            if tag == name or (tag.replace("eval/", "eval_") == name):
                scalars += [event.value for event in events.Scalars(tag)]
    client = mlflow.MlflowClient()
    runs = client.search_runs([found.experiment_id for found in client.search_experiments()])
    history = [
        metric.value for run in runs for metric in client.get_metric_history(run.info.run_id, name)
    ]
    files = Path.cwd().rglob("*.wandb")
    text = b"".join(file.read_bytes() for file in files).decode("latin-1")
    return {"tensorboard": scalars, "mlflow": history, "wandb": text}


if __name__ == "__main__":
    folder, loop = Path(sys.argv[1]), sys.argv[2]
    os.chdir(folder)
    os.environ["MLFLOW_TRACKING_URI"] = (folder / "mlruns").as_uri()
    act: dict[str, tuple[Callable[[], None], str]] = {
        "lightning": (with_lightning, "val_ece"), "transformers": (with_transformers, "eval_ece"),
        "accelerate": (with_accelerate, "ece"),
    }  # fmt: skip
    train, metric = act[loop]
    train()
    if not _ONE_PROCESS:
        # These loops leave torch's process group, whose threads free tensors; one that needs the
        # interpreter at its end aborts it.
        sys.stdout.flush()
        os._exit(0)
    Path("logged.json").write_text(json.dumps(logged(metric)))
