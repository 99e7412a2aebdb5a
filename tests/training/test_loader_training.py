"""`training.train`: a network, loaders and a loss of the user."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

import training
from recalib.errors import InputError
from recalib.losses import LOSSES
from recalib.metrics.evaluate import evaluate


class WithLogits(nn.Module):
    """A network with keyword inputs and a dictionary as output, as of transformers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, points: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(points)}


def data(seed: int, rows: int = 96) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(rows, 2, generator=generator)
    noise = torch.randn(rows, generator=generator)
    return TensorDataset(points, (points.sum(dim=1) + noise > 0).long())


def loaders(shuffle: bool = True) -> dict[str, Any]:
    return {
        "train": DataLoader(data(0), batch_size=32, shuffle=shuffle),
        "validation": DataLoader(data(1), batch_size=40),
        "test": DataLoader(data(2), batch_size=40),
    }


def layer() -> nn.Linear:
    network = nn.Linear(2, 2)
    nn.init.zeros_(network.weight)
    nn.init.zeros_(network.bias)
    return network


def train(network: nn.Module | None = None, **arguments: Any) -> training.TrainedModel:
    defaults = {"loaders": loaders(), "epochs": 2, "device": "cpu"}
    return training.train(network or layer(), **{**defaults, **arguments})


def test_steps_equal_those_of_a_loop_by_hand() -> None:
    network = layer()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    primary, secondary = LOSSES["focal"](gamma=2.0), LOSSES["sb_ece"]()
    for epoch in range(2):
        for group in optimiser.param_groups:
            group["lr"] = 0.5 if epoch == 0 else 0.05
        for points, labels in loaders(shuffle=False)["train"]:
            logits = network(points)
            beta = 0.3 if epoch == 0 else 0.1
            loss = primary(logits, labels) + beta * secondary(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(network.parameters(), 0.02)
            optimiser.step()
            assert norm > 0.02
    result = train(
        loaders=loaders(shuffle=False),
        loss="focal",
        options={"gamma": 2.0},
        secondary="sb_ece",
        beta={"values": [0.3, 0.1], "at": [0.0, 0.5]},
        optimiser={"learning_rate": 0.5, "weight_decay": 0.01, "milestones": [1.0]},
        clip_norm=0.02,
    )
    assert torch.equal(result.model.weight, network.weight)  # type: ignore[arg-type]
    points, labels = data(1).tensors
    np.testing.assert_allclose(
        result.validation_logits, network(points).detach().numpy(), atol=1e-6
    )
    np.testing.assert_array_equal(result.validation_labels, labels.numpy())
    assert result.test_labels is not None
    np.testing.assert_array_equal(result.test_labels, data(2).tensors[1].numpy())


def test_average_of_the_weights_is_measured_and_returned() -> None:
    """It equals the average by torch; running statistics are averaged too."""
    network, other = (nn.Sequential(layer(), nn.BatchNorm1d(2)) for _ in range(2))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    average.update_parameters(network)  # the first call copies the weights
    for _ in range(2):
        for points, labels in loaders(shuffle=False)["train"]:
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(points), labels).backward()
            optimiser.step()
            average.update_parameters(network)
    result = train(
        other,
        loaders=loaders(shuffle=False),
        ema_decay=0.8,
        optimiser=torch.optim.SGD(other.parameters(), lr=0.1),
    )
    expected = average.module.state_dict()
    for name, value in result.model.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-7)
    assert result.model.state_dict()["1.num_batches_tracked"] == 6
    logits = average.module.eval()(data(1).tensors[0])
    np.testing.assert_allclose(result.validation_logits, logits.detach(), rtol=1e-4, atol=1e-6)


def test_names_and_modules_and_kinds_of_batches_agree() -> None:
    network: nn.Module = layer()
    before = torch.get_rng_state()
    by_name = train(network, loss="brier", optimiser="sgd")
    assert torch.equal(torch.get_rng_state(), before)

    def collate(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        points, labels = zip(*rows, strict=True)
        return {"points": torch.stack(points), "labels": torch.stack(labels)}

    dictionaries = {
        name: DataLoader(data(i), batch_size=32, shuffle=i == 0, collate_fn=collate)
        for i, name in enumerate(("train", "validation"))
    }
    network = WithLogits(layer()).eval()
    own = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    records: list[dict[str, Any]] = []
    by_module = train(
        network,
        loaders=dictionaries,
        loss=LOSSES["brier"](),
        optimiser=own,
        progress=records.append,
    )
    np.testing.assert_array_equal(by_module.validation_logits, by_name.validation_logits)
    assert by_module.test_logits is None
    assert records == by_module.history
    assert [record["epoch"] for record in records] == [1, 2]
    expected = evaluate(
        by_name.validation_labels,
        logits=by_name.validation_logits,
        metrics=["accuracy", "nll", "ece"],
    )
    for name, metric in expected.items():
        assert by_name.history[-1]["validation"][name] == pytest.approx(metric.value), name
    other_seed = train(loss="brier", seed=2)
    assert not np.array_equal(other_seed.validation_logits, by_name.validation_logits)


def test_one_column_of_log_odds_is_class_1_of_2() -> None:
    """As a loss with a sigmoid takes them, (N, 1): trained and measured as (N,)."""
    torch.manual_seed(0)
    column = nn.Linear(2, 1)
    flat = nn.Sequential(copy.deepcopy(column), nn.Flatten(0))
    results = [train(network, loaders=loaders(shuffle=False)) for network in (column, flat)]
    assert results[0].validation_logits.shape == (96, 2)
    np.testing.assert_array_equal(results[0].validation_logits, results[1].validation_logits)
    assert results[0].history[-1]["validation"]["accuracy"] > 0.6


def test_pixels_become_rows_and_void_pixels_are_left_out() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(6, 1, 4, 4, generator=generator)
    labels = (images[:, 0] > 0).long()
    labels[:, 0] = 255
    loader = DataLoader(TensorDataset(images, labels), batch_size=3)
    result = train(
        nn.Conv2d(1, 2, 1),
        loaders={"train": loader, "validation": loader},
        loss="cross_entropy",
        options={"ignore_index": 255},
    )
    assert result.validation_logits.shape == (6 * 12, 2)
    np.testing.assert_array_equal(result.validation_labels, labels[:, 1:].flatten().numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "focl"}, "loss.*did you mean focal"),
        ({"loss": "sb_ece"}, "loss"),
        ({"secondary": "crl"}, "secondary.*positions"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "loss.*shape.*scalar"),
        ({"loss": nn.CrossEntropyLoss(), "options": {"gamma": 1.0}}, "loss.*with options"),
        ({"options": {"gama": 1.0}, "loss": "focal"}, "gama"),
        ({"beta": 0.5}, "beta.*without a secondary"),
        ({"secondary": "mdca", "beta": -1.0}, "beta.*-1"),
        ({"secondary": "mdca", "beta": "1"}, "^beta: found 1; accepted: a number"),
        ({"secondary": "mdca", "beta": {"values": [1.0, -1.0], "at": [0.0, 0.5]}}, "beta.*-1"),
        ({"secondary": "mdca", "beta": {"values": [1.0]}}, "beta.at"),
        ({"beta": {"values": [1.0], "at": [0.0]}}, "beta.*without a secondary"),
        ({"optimiser": "sdg"}, "optimiser.name"),
        ({"epochs": 0}, "epochs"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"ema_decay": 1.0}, "ema_decay"),
        ({"loaders": {"train": []}}, "loaders.*validation"),
        ({"loaders": {**loaders(), "train": []}}, "loaders.train.*no batch"),
        ({"loaders": {**loaders(), "train": [torch.ones(3, 2)]}}, "loaders.train.*labels"),
        ({"network": layer().requires_grad_(False)}, "model.*requires_grad"),
        ({"optimiser": {"learning_rate": 1e38}, "loss": "brier"}, "not finite"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(**arguments)
