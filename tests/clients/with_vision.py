"""Train networks of torchvision, timm and transformers by name; write the results of the runs.

    python -m tests.clients.with_vision FOLDER torchvision|timm|transformers

Nothing is downloaded: weights are random, and are saved before they are loaded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from PIL import Image

from recalib.cli import main as recalib

#: Images of Pillow with random pixels; `random_offset` makes other images.
FAKE_DATA: dict[str, Any] = {
    "source": "dataset",
    "options": {
        "factory": "torchvision.datasets:FakeData",
        "train": {"size": 40, "image_size": [3, 32, 32], "num_classes": 3},
        "test": {"size": 12, "image_size": [3, 32, 32], "num_classes": 3, "random_offset": 99},
    },
    "validation": 12,
}
LIBRARIES: list[torch.library.Library] = []
RECIPE: dict[str, Any] = {
    "epochs": 1, "batch_size": 8, "device": "cpu", "report": False,
    "optimiser": {"learning_rate": 0.01},
}  # fmt: skip
TEXTS = """
import torch

class Texts:
    '''Dictionaries of word indices, as of a tokeniser.'''

    def __init__(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, 9, (rows, 6), generator=generator)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, row):
        words = self.words[row]
        mask = torch.ones_like(words)
        return {"input_ids": words, "attention_mask": mask, "label": ["few", "many"][words[0] // 5]}
"""


def define_operators() -> None:
    """Declare two operators of torchvision that a build for CUDA lacks here; none is called."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    LIBRARIES.append(library)  # the operators exist as long as it


def train(folder: Path, run: str, data: dict[str, Any], **model: Any) -> dict[str, Any]:
    """Run `recalib train`; return its `result.json`."""
    recipe = folder / f"{run}.json"
    recipe.write_text(json.dumps({**RECIPE, "name": run, "data": data, "model": model}))
    try:
        recalib(["train", str(recipe), "-o", str(folder / run), "--json"])
    except SystemExit as end:
        if end.code:
            raise
    result: dict[str, Any] = json.loads((folder / run / "result.json").read_text())
    return result


def with_torchvision(folder: Path) -> dict[str, Any]:
    import torchvision

    state = torchvision.models.resnet18(num_classes=1000).state_dict()
    saved = {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save(saved, folder / "imagenet.pth")
    network = {"name": "torchvision.models:resnet18", "options": {"weights": None}}
    head = {"weights": "imagenet.pth", "new_head": True, "train": "head"}
    for number, image in enumerate(np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3))):
        path = folder / "photos" / ("cat", "dog", "owl")[number % 3]
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(path / f"{number}.png")
    root = {"root": str(folder / "photos")}
    options = {"factory": "torchvision.datasets:ImageFolder", "train": root}
    photos = {"source": "dataset", "options": options, "test": 0.2, "validation": 0.2}
    return {
        "folder": train(folder, "folder", photos, **network),
        "random": train(folder, "random", FAKE_DATA, **network),
        "head": train(folder, "head", FAKE_DATA, **network, **head),
    }


def with_timm(folder: Path) -> dict[str, Any]:
    options = {"model_name": "mobilenetv3_small_050", "pretrained": False}
    return {"random": train(folder, "timm", FAKE_DATA, name="timm:create_model", options=options)}


def with_transformers(folder: Path) -> dict[str, Any]:
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        ViTConfig,
        ViTForImageClassification,
    )

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {**small, "intermediate_size": 16, "num_labels": 5}
    bert = BertForSequenceClassification(BertConfig(vocab_size=10, **sizes))
    bert.save_pretrained(folder / "bert")
    vit = ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, **sizes))
    vit.save_pretrained(folder / "vit")
    (folder / "texts.py").write_text(TEXTS)
    texts = {
        "source": "dataset",
        "options": {
            "factory": f"{folder / 'texts.py'}:Texts",
            "train": {"rows": 60, "seed": 0},
            "test": {"rows": 20, "seed": 1},
        },
        "validation": 12,
    }
    shapes = {"train": "train.npz", "test": "test.npz", "normalise": "unit", "layout": "hwc"}
    generator = torch.Generator().manual_seed(0)
    for name in ("train", "test"):
        pixels = torch.randint(0, 256, (40, 16, 16, 3), generator=generator, dtype=torch.uint8)
        np.savez(folder / f"{name}.npz", inputs=pixels.numpy(), labels=np.arange(40) % 3)
    images = {"source": "arrays", "options": shapes, "validation": 12}
    load = {"ignore_mismatched_sizes": True}
    results = {}
    for kind, task, data in (
        ("bert", "SequenceClassification", texts), ("vit", "ImageClassification", images)
    ):  # fmt: skip
        options = {"pretrained_model_name_or_path": str(folder / kind), **load}
        name = f"transformers:AutoModelFor{task}.from_pretrained"
        results[kind] = train(folder, f"run-{kind}", data, name=name, options=options)
    return results


if __name__ == "__main__":
    place, package = Path(sys.argv[1]), sys.argv[2]
    if package != "transformers":
        define_operators()
    act: dict[str, Callable[[Path], dict[str, Any]]] = {
        "torchvision": with_torchvision, "timm": with_timm, "transformers": with_transformers,
    }  # fmt: skip
    (place / "results.json").write_text(json.dumps(act[package](place)))
