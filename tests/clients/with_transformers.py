"""Train, save and call a tiny model with transformers; write what Recalib adds to it.

    python -m tests.clients.with_transformers FOLDER

Nothing is downloaded: the model is made from its configuration, the tokeniser from three words.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

import recalib
from recalib.losses import LOSSES
from recalib.torch import CalibratedModule
from recalib.transformers import CalibratedPipeline, compute_metrics
from tests.loop_examples import loop_example

TEXTS = ["good", "bad", "so so", "good good", "bad so", "so"]
NAMES = ("positive", "negative", "neutral")


def main(folder: Path) -> None:
    """Write `results.json`: the results of pipeline, module and trainer."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "so"]
    folder.joinpath("vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, initializer_range=1.0, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, id2label=dict(enumerate(NAMES)),
        label2id={name: k for k, name in enumerate(NAMES)},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    encoded = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = model(**encoded).logits.numpy()
    labels = logits.argmax(axis=1)
    labels[:2] = (labels[:2] + 1) % 3
    calibrator = recalib.fit(logits, labels, "temperature", class_labels=NAMES)
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    classify = CalibratedPipeline(pipeline, calibrator)
    with torch.no_grad():
        by_module = CalibratedModule(model, calibrator)(**encoded)
    results = {
        "logits": logits.tolist(),
        "predicted": calibrator.predict(logits.astype(np.float64)).tolist(),
        "module": by_module.tolist(),
        "pipeline": classify(TEXTS, top_k=None),
        "one": classify(TEXTS[0], top_k=2),
        "labels": labels.tolist(),
        "trainer": by_trainer(model, encoded, labels, folder),
        "objectives": [
            trained_objectives(model, encoded, labels, folder, parts) for parts in (1, 3)
        ],
    }
    folder.joinpath("results.json").write_text(json.dumps(results))


def rows_of(encoded: Any, labels: NDArray[Any]) -> list[dict[str, Any]]:
    """Return a data set for `Trainer`."""
    return [
        {**{name: values[i] for name, values in encoded.items()}, "labels": label}
        for i, label in enumerate(labels.tolist())
    ]


def trained_objectives(
    model: Any, encoded: Any, labels: NDArray[Any], folder: Path, parts: int
) -> list[float]:
    """Return focal loss by docs/training.md's `objective` before and after a training in parts."""
    model = copy.deepcopy(model)
    example = loop_example("transformers").split("def objective")[1].split("\n\n")[0]
    primary = LOSSES["focal"](gamma=3.0)
    names: dict[str, Any] = {"primary": primary, "secondary": lambda logits, labels: 0.0}
    exec("def objective" + example, names)  # noqa: S102

    def value() -> float:
        with torch.no_grad():
            return float(primary(model.eval()(**encoded).logits, torch.tensor(labels)))

    before = value()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trained"), report_to=[], use_cpu=True, save_strategy="no",
        num_train_epochs=20, learning_rate=0.01, gradient_accumulation_steps=parts,
        per_device_train_batch_size=len(labels) // parts,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows_of(encoded, labels),
        compute_loss_func=names["objective"],
    )
    trainer.train()
    return [before, value()]


def by_trainer(model: Any, encoded: Any, labels: NDArray[Any], folder: Path) -> dict[str, float]:
    """Return the metrics of an evaluation by `Trainer`."""
    rows = rows_of(encoded, labels)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), report_to=[], use_cpu=True
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, eval_dataset=rows, compute_metrics=compute_metrics()
    )
    return {name: float(value) for name, value in trainer.evaluate().items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
