"""Fine-tuning: loading, freezing, and weights that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.recipe import Recipe
from tests.files.bad_files import BAD_OFFSETS
from tests.training.engine.tiny import Memory, Onlooker, recipe, splits
from training.engine.loop import TrainingResult, train
from training.engine.weights import load_weights, read_weights, weights_bytes
from training.models import build


def network(classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return build("resnet8", classes, channels=1)


def tensors(classes: int = 10) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network(classes).state_dict().items()}


def test_saved_weights_can_be_loaded(tmp_path: Path) -> None:
    """Every tensor is restored, including running statistics."""
    (tmp_path / "w.safetensors").write_bytes(weights_bytes(tensors(), "resnet8"))
    other = build("resnet8", 10, channels=1)
    load_weights(other, read_weights(tmp_path / "w.safetensors"), new_head=False)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, tensors()[name]), name


def test_a_new_head_keeps_the_body() -> None:
    """All tensors but the head's come from a network with other classes."""
    other = network(3)
    drawn = other.state_dict()["head.weight"].clone()
    changed = {name: tensor + 1 for name, tensor in tensors().items()}
    load_weights(other, changed, new_head=True)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, drawn) if name == "head.weight" else True
        assert name.startswith("head.") or torch.equal(tensor, changed[name]), name


def _without(name: str) -> dict[str, Tensor]:
    weights = tensors()
    del weights[name]
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (tensors(3), r"head.weight \(3, 64\) instead of \(10, 64\); head.bias \(3,\) instead of"),
        (_without("head.bias"), r"found head.bias \(10,\) missing; accepted: the \d+ tensors of"),
        ({**tensors(), "a.b": torch.ones(2, 3)}, r"a.b \(2, 3\) unknown"),
        ({**tensors(), "head.bias": torch.ones(10).int()}, r"head.bias \(10,\) int32 instead of"),
        ({**tensors(), "head.bias": torch.full((10,), torch.nan)}, r"head.bias is not finite"),
        ({}, r"; and \d+ more"),
    ],
)
def test_weights_that_do_not_fit_are_listed(weights: dict[str, Tensor], message: str) -> None:
    """The network does not change."""
    other = network()
    with pytest.raises(InputError, match=message):
        load_weights(other, weights, new_head=False)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, tensors()[name]), name


def test_partial_loads_say_what_is_loaded() -> None:
    """Tensors of the same name and shape are loaded, others keep their initial values."""
    weights = {**tensors(3), "a.b": torch.ones(2, 3)}
    del weights["stages.2.0.norm1.bias"]
    changed = {name: tensor + 1 for name, tensor in weights.items()}
    other = network()
    loaded = load_weights(other, changed, new_head=False, partial=True)
    left_out = {"stages.2.0.norm1.bias", "head.weight", "head.bias"}
    assert set(loaded.not_loaded) == {f"{name} {tuple(tensors()[name].shape)}" for name in left_out}
    assert set(loaded.unused) == {"a.b (2, 3)", "head.weight (3, 64)", "head.bias (3,)"}
    assert loaded.loaded == len(tensors()) - 3
    for name, tensor in other.state_dict().items():
        source = tensors()[name] if name in left_out else changed[name]
        assert torch.equal(tensor, source), name
    assert f"{loaded.loaded} of the network's {len(tensors())} tensors" in loaded.describe()
    with pytest.raises(InputError, match=r"and \d+ more"):
        load_weights(network(), {"a.b": torch.ones(2)}, new_head=False, partial=True)


def test_run_records_what_was_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = dict(trained(monkeypatch, recipe(model={"name": "normed"})).weights)
    del first["body.0.bias"]
    start = {"name": "normed", "weights": "w.pth", "partial_weights": True}
    run = trained(monkeypatch, recipe(model=start), first)
    assert run.loaded_weights is not None
    assert run.loaded_weights.not_loaded == ("body.0.bias (6,)",)
    assert "not loaded: body.0.bias (6,)" in caplog.text


@pytest.mark.parametrize(
    "content",
    [None, b"", b"PK\x03\x04", b"\xff" * 64, *(content for content, _ in BAD_OFFSETS.values())],
)
def test_invalid_weight_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "w").write_bytes(content)
    with pytest.raises(InputError, match=r"^model.weights: found .*accepted: a safetensors file"):
        read_weights(tmp_path / "w")


class Normed(nn.Module):
    """A body with running statistics below a head."""

    def __init__(self, classes: int, *, features: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 6), nn.BatchNorm1d(6), nn.Tanh())
        self.head = nn.Linear(6, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits


def trained(monkeypatch: pytest.MonkeyPatch, config: Recipe, weights: Any = None) -> TrainingResult:
    from training.models import MODELS

    monkeypatch.setitem(MODELS, "normed", Normed)
    return train(config, splits(), Memory(), Onlooker(), weights)


def test_training_only_the_head_keeps_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body and its running statistics do not change; otherwise all layers change."""
    first = trained(monkeypatch, recipe(model={"name": "normed"})).weights
    start = {"name": "normed", "weights": "w.safetensors"}
    head = trained(monkeypatch, recipe(model={**start, "train": "head"}), first).weights
    for name, tensor in head.items():
        assert torch.equal(tensor, first[name]) != name.startswith("head."), name
    all_layers = trained(monkeypatch, recipe(model=start), first).weights
    assert not any(torch.equal(tensor, first[name]) for name, tensor in all_layers.items())
