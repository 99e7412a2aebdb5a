"""Train twenty small networks of torchvision, timm and transformers, as their factories make them.

    python -m tests.clients.with_networks FOLDER vision|transformers

`errors.json` has the error of each network that does not train. Weights are random, and nothing is
downloaded. Under torchrun, all processes train.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch

from recalib.cli import main as recalib
from tests.clients.with_vision import define_operators

_TIMM = (
    "resnet10t", "mobilenetv3_small_050", "lcnet_050", "regnetx_002", "ghostnet_100",
    "convnext_atto",
)  # fmt: skip
_VISION: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("resnet18", {}),
    "mobilenet": ("mobilenet_v3_small", {}),
    "shufflenet": ("shufflenet_v2_x0_5", {}),
    "squeezenet": ("squeezenet1_1", {}),
    "regnet": ("regnet_y_400mf", {}),
    "vit": ("VisionTransformer", {
        "image_size": 32, "patch_size": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 16,
        "mlp_dim": 32,
    }),
}  # fmt: skip
_SIZES = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "pad_token_id": 0, "vocab_size": 20,
}  # fmt: skip
_TEXT = {
    "bert": _SIZES, "roberta": {**_SIZES, "max_position_embeddings": 32}, "electra": _SIZES,
    "albert": {**_SIZES, "embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 20},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "pad_token_id": 0, "vocab_size": 20},
    "llama": {**_SIZES, "num_key_value_heads": 2},
}  # fmt: skip
_IMAGES = {"vit": {"image_size": 32, "patch_size": 8}}
_ROWS = """
import torch

def texts(seed):
    words = torch.randint(1, 20, (40, 6), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "label": int(row[0]) % 3} for row in words]
"""


def vision_models(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the part `model` of a recipe for each network."""
    models = {
        f"torchvision-{name}": {"name": f"torchvision.models:{factory}", "options": options}
        for name, (factory, options) in _VISION.items()
    }
    for name in _TIMM:
        options = {"model_name": name, "pretrained": False}
        models[f"timm-{name}"] = {"name": "timm:create_model", "options": options}
    return models


def transformers_models(folder: Path) -> dict[str, dict[str, Any]]:
    """Save networks of random weights, and return the part `model` of a recipe for each."""
    import transformers

    tasks = [(name, "SequenceClassification", options) for name, options in _TEXT.items()]
    tasks += [
        (name, "ImageClassification", {**_SIZES, **options}) for name, options in _IMAGES.items()
    ]
    models = {}
    for name, task, options in tasks:
        auto, path = f"AutoModelFor{task}", folder / f"saved-{task}-{name}"
        if os.environ.get("RANK", "0") == "0":
            config = transformers.AutoConfig.for_model(name, num_labels=3, **options)
            getattr(transformers, auto).from_config(config).save_pretrained(path)
        arguments = {"pretrained_model_name_or_path": str(path)}
        models[f"{task}-{name}"] = {
            "name": f"transformers:{auto}.from_pretrained", "options": arguments,
        }  # fmt: skip
    return models


def data_of(folder: Path, name: str) -> dict[str, Any]:
    """Return the part `data` of a recipe: images, or the texts of `texts.py`."""
    if name.startswith("SequenceClassification"):
        splits = {split: {"seed": seed} for seed, split in enumerate(("train", "test"))}
        options = {"factory": f"{folder / 'texts.py'}:texts", **splits}
        return {"source": "dataset", "options": options, "validation": 8}
    files = {"train": "train.npz", "test": "test.npz", "normalise": "unit", "layout": "hwc"}
    return {"source": "arrays", "options": files, "validation": 8}


def train_all(folder: Path, own: Path, models: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Run `recalib train` for each network, with arrays in `own`; return the errors by name."""
    errors = {}
    for name, model in models.items():
        recipe = {
            "name": name, "epochs": 1, "batch_size": 8, "device": "cpu", "report": False,
            "optimiser": {"learning_rate": 0.01}, "model": model, "data": data_of(folder, name),
            "loss": {"primary": "focal", "secondary": "sb_ece"},
        }  # fmt: skip
        path = own / f"{name}.json"
        path.write_text(json.dumps(recipe))
        try:
            recalib(["train", str(path), "-o", str(folder / name), "--json"])
        except SystemExit as end:
            if end.code:
                errors[name] = f"ends with {end.code}"
    return errors


if __name__ == "__main__":
    place, package, rank = Path(sys.argv[1]), sys.argv[2], os.environ.get("RANK", "0")
    # A process would read arrays of one folder while another writes them.
    inputs = place / f"inputs-{rank}"
    inputs.mkdir()
    os.chdir(place)
    (place / "texts.py").write_text(_ROWS)
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        pixels = generator.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        np.savez(inputs / f"{split}.npz", inputs=pixels, labels=np.arange(40) % 3)
    if package == "vision":
        define_operators()
    torch.manual_seed(0)
    make = vision_models if package == "vision" else transformers_models
    found = train_all(place, inputs, make(place))
    (place / f"errors-{rank}.json").write_text(json.dumps(found))
