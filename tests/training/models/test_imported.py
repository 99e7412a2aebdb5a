"""A user's own network: its factory, its output, its last layer and its saved weights."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from recalib.errors import InputError
from recalib.recipe import Recipe
from recalib.registry.server_recipe import check_server_recipe
from training.engine.evaluate import forward
from training.engine.weights import read_weights
from training.models import build, head

NETWORKS = """
import enum
import types
from torch import nn

class Network(nn.Module):
    def __init__(self, num_classes, width=8):
        super().__init__()
        self.body = nn.Linear(2, width)
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(width, num_classes), nn.Identity())

    def forward(self, inputs):
        return types.SimpleNamespace(logits=self.classifier(self.body(inputs)))

class Size(enum.Enum):
    SMALL = types.SimpleNamespace(width=4)

def with_foreign_type(num_classes, size: Size | None = Size.SMALL):
    return Network(num_classes, 4 if size is None else size.value.width)

def with_keywords(**options):
    return Network(**options)

class Pretrained(nn.Module):
    @classmethod
    def from_pretrained(cls, *arguments, **options: "AbsentType"):
        network = cls()
        network.__dict__.update(options)
        return network

def without_classes(width):
    return Network(3, width)
"""


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    (tmp_path / "networks.py").write_text(NETWORKS)
    return tmp_path / "networks.py"


@pytest.mark.parametrize("factory", ["Network", "with_keywords"])
def test_factory_in_a_file_gets_the_classes_and_options(networks: Path, factory: str) -> None:
    network = build(f"{networks}:{factory}", 5, width=16)
    assert forward(network, torch.zeros(3, 2)).shape == (3, 5)
    assert isinstance(head(network), nn.Linear)
    assert head(network).in_features == 16


def test_option_of_a_foreign_type_is_passed_on(networks: Path) -> None:
    """An example is `weights` of torchvision."""
    assert head(build(f"{networks}:with_foreign_type", 5, size=None)).out_features == 5


def test_method_of_a_class_gets_num_labels(networks: Path) -> None:
    """`from_pretrained` of Hugging Face has no parameter for the classes but keywords."""
    network = build(f"{networks}:Pretrained.from_pretrained", 4, path="folder")
    assert (network.num_labels, network.path) == (4, "folder")


def test_factory_in_a_module() -> None:
    network = build("torch.nn:Identity", 3)
    assert isinstance(network, nn.Identity)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.module:make", "No module named 'absent'; accepted: .* in PYTHONPATH"),
        ("absent.py:make", "no file absent.py"),
        ("json:absent", "no attribute 'absent'"),
        ("FILE:without_classes", "a parameter classes or num_classes or num_labels"),
    ],
)
def test_factory_that_cannot_be_used_is_refused(networks: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name.replace("FILE", str(networks)), 3, width=4)


def test_unknown_option_names_the_options(networks: Path) -> None:
    with pytest.raises(InputError, match=r"options.depth: found an unknown option; .*width"):
        build(f"{networks}:Network", 3, depth=4)


@pytest.mark.parametrize(
    ("name", "allowed", "is_allowed"),
    [
        ("os:system", [], False),
        ("timm:create_model", ["timm"], True),
        ("timm.models.resnet:resnet18", ["timm.models"], True),
        ("timm:create_model", ["timm:create_model"], True),
        ("timm:list_models", ["timm:create_model"], False),
        ("timm2:create_model", ["timm"], False),
        ("os:timm", ["timm"], False),
        ("timm:torch.hub.load", ["timm"], False),
        ("timm:models.make", ["timm:models.make"], True),
        # Files, which are imported from the folder of the worker.
        ("timm.py:make", ["timm"], False),
        ("timm/networks.py:make", ["timm"], False),
        ("timm:../networks.py:make", ["timm"], False),
        (":make", [""], False),
    ],
)
def test_servers_import_only_what_they_allow(
    name: str, allowed: list[str], is_allowed: bool
) -> None:
    data = {"source": "dataset", "options": {"factory": name, "train": {}}}
    for recipe, field in (
        (Recipe.of({"data": {}, "model": {"name": name}}), "model.name"),
        (Recipe.of({"data": data, "model": {"name": "linear"}}), "data.options.factory"),
    ):
        if is_allowed:
            check_server_recipe(recipe, allowed)
            continue
        with pytest.raises(InputError, match=f"{field}: found .*RECALIB_TRAINING_IMPORTS"):
            check_server_recipe(recipe, allowed)


@pytest.mark.parametrize(
    "output",
    [
        torch.ones(2, 3),
        {"logits": torch.ones(2, 3), "loss": None},
        SimpleNamespace(logits=torch.ones(2, 3)),
    ],
)
def test_logits_are_found_in_any_output(output: Any) -> None:
    network = nn.Module()
    network.forward = lambda inputs: output  # type: ignore[method-assign]
    assert torch.equal(forward(network, torch.zeros(2, 1)), torch.ones(2, 3))


def test_output_without_logits_is_refused() -> None:
    network = nn.Module()
    network.forward = lambda inputs: {"scores": inputs}  # type: ignore[method-assign]
    with pytest.raises(InputError, match="an object with `logits`"):
        forward(network, torch.zeros(2, 1))


@pytest.mark.parametrize("wrap", [dict, lambda state: {"state_dict": state, "epoch": 3}])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_saved_states_are_read(wrap: Any, prefix: str, tmp_path: Path) -> None:
    state = {f"{prefix}head.weight": torch.ones(2, 3), f"{prefix}module_list.0": torch.zeros(1)}
    torch.save(wrap(state), tmp_path / "weights.pth")
    tensors = read_weights(tmp_path / "weights.pth")
    assert list(tensors) == ["head.weight", "module_list.0"]
    assert torch.equal(tensors["head.weight"], torch.ones(2, 3))


class _Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return (json.loads, ("0",))


@pytest.mark.parametrize("content", [_Code(), {"weight": _Code()}, [1], {"weight": 1}, None])
def test_files_with_anything_else_are_refused(content: Any, tmp_path: Path) -> None:
    """Code in a file is not run."""
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"^model.weights: .*with tensors only"):
        read_weights(tmp_path / "weights.pt")
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(InputError, match=r"^model.weights"):
        read_weights(tmp_path / "text.pth")
