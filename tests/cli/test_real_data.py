"""The published logits of a ResNet-110 on CIFAR-10, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Cli

# References: the optimum to 4 decimals, as an independent solver finds it; accuracy and ECE as
# the paper that published these logits has them (uncalibrated 93.56%, 4.75%).


def test_temperature(cli: Cli, real_data: Path) -> None:
    fit = ["fit", real_data / "resnet110-cifar10-val.npz", "-o", "t.calib"]
    fitted = cli(*fit, "--map", "temperature", "--objective", "nll", "--json").json
    assert fitted["parameters"]["temperature"] == pytest.approx(2.3950, abs=5e-5)
    assert "temperature: 2.3950\n" in cli(*fit).out

    test = real_data / "resnet110-cifar10-test.npz"
    before = cli("evaluate", test, "--json").json
    after = cli("evaluate", test, "--calibrator", "t.calib", "--json").json
    assert before["accuracy"] == after["accuracy"] == 0.9356
    assert before["ece"] == pytest.approx(0.0475, abs=5e-5)
    assert after["ece"] == pytest.approx(0.0113, abs=5e-5)
    assert after["nll"] == pytest.approx(0.20926, abs=5e-6)


def test_class_temperature(cli: Cli, real_data: Path) -> None:
    validation, test = (real_data / f"resnet110-cifar10-{name}.npz" for name in ("val", "test"))
    assert cli("fit", validation, "--map", "class_temperature", "-o", "c.calib").status == 0
    after = cli("evaluate", test, "--calibrator", "c.calib", "--json").json
    assert after["accuracy"] == 0.9343
    assert 0.01295 <= after["ece"] < 0.01315
