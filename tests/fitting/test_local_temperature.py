"""Local temperature scaling: what it learns, what it never does, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from scipy.special import log_softmax

import recalib
from recalib.errors import CorruptError, InputError
from recalib.fitting.local_temperature import LocalTemperature, fit_local_temperature

K, VOID = 3, 255


def scenes(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return logits, labels, and images that show where the logits are four times too large.

    Labels are drawn from the softmax of the logits before that; the top row is void.
    """
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal((count, K, 12, 12))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    images = np.repeat(rng.integers(0, 2, (count, 1, 1, 2)), 6, axis=3)
    images = np.repeat(images, 12, axis=2).astype(np.float32)
    labels[:, 0] = VOID
    return (logits * 4**images).astype(np.float32), labels, images


def nll(probabilities: Any, labels: Any) -> float:
    p = np.take_along_axis(probabilities, np.where(labels == VOID, 0, labels)[:, None], 1)[:, 0]
    return float(-np.log(p[labels != VOID]).mean())


@pytest.fixture(scope="module")
def local() -> LocalTemperature:
    logits, labels, _ = scenes(40)
    return fit_local_temperature(logits, labels, ignore_index=VOID, epochs=12, width=8)


@pytest.mark.slow
def test_temperatures_follow_the_place(local: LocalTemperature) -> None:
    """On other images, it is much better than one temperature, and keeps every prediction."""
    logits, labels, images = scenes(20, seed=1)
    with torch.no_grad():
        p = local(torch.from_numpy(logits)).numpy()
        temperatures = local.temperatures(torch.from_numpy(logits)).numpy()
    single = np.exp(log_softmax(logits / local.card.temperature, axis=1))
    truth = np.exp(log_softmax(logits / 4**images, axis=1))
    assert nll(truth, labels) < nll(p, labels) < nll(single, labels) - 0.05
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    assert temperatures[images == 1].mean() > 2 * temperatures[images == 0].mean()
    assert local.card.is_local
    assert local.card.nll_local < local.card.nll_single - 0.05


@pytest.mark.slow
def test_images_help_where_logits_do_not_show_the_place() -> None:
    """The logits of a class at a time are alike; the image shows which of them are too large."""
    logits, labels, images = scenes(40)
    logits = np.sign(logits)
    truth = 4.0**-images
    rng = np.random.default_rng(3)
    labels[:] = (logits * truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    options: dict[str, Any] = {"epochs": 8, "width": 8, "learning_rate": 0.02}
    blind = fit_local_temperature(logits, labels, **options)
    seeing = fit_local_temperature(logits, labels, images, **options)
    assert seeing.card.channels == 1
    assert seeing.card.nll_local < blind.card.nll_local - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("learning_rate", [0.005, 3.0])
def test_held_out_nll_is_never_above_one_temperature(learning_rate: float) -> None:
    """On calibrated noise nothing is to be learnt, and the single temperature stays."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((20, K, 8, 8)).astype(np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    fitted = fit_local_temperature(logits, labels, learning_rate=learning_rate, epochs=6)
    card = fitted.card
    assert card.nll_local <= card.nll_single
    assert not card.is_local
    # The numbers of the card are those of the images that the seed holds out.
    order = np.random.default_rng(0).permutation(20)[:4]
    rows, truth = logits[order], labels[order]
    single = np.exp(log_softmax(rows / card.temperature, axis=1))
    with torch.no_grad():
        p = fitted(torch.from_numpy(rows)).numpy()
    assert nll(single, truth) <= card.nll_single
    np.testing.assert_allclose(p, single, rtol=1e-5)
    complete = recalib.fit(logits, labels).parameters["temperature"]
    assert card.temperature == pytest.approx(complete.item())


@pytest.mark.slow
def test_card_has_the_nll_of_the_images_that_are_held_out(local: LocalTemperature) -> None:
    logits, labels, _ = scenes(40)
    order = np.random.default_rng(0).permutation(40)[:8]
    with torch.no_grad():
        p = local(torch.from_numpy(logits[order])).numpy()
    assert local.card.nll_local == pytest.approx(nll(p, labels[order]), rel=1e-5)
    single = np.exp(log_softmax(logits[order] / local.card.temperature, axis=1))
    by_image = [
        nll(p[n, None], labels[image, None]) - nll(single[n, None], labels[image, None])
        for n, image in enumerate(order)
    ]
    # All images have as many pixels that count.
    error = np.std(by_image, ddof=1) / np.sqrt(8)
    assert local.card.standard_error == pytest.approx(error, rel=1e-3)


def one_step() -> LocalTemperature:
    logits, labels, _ = scenes(4)
    state = torch.get_rng_state()
    fitted = fit_local_temperature(logits, labels, ignore_index=VOID, epochs=1, width=2, kernel=3)
    assert torch.equal(torch.get_rng_state(), state)
    return fitted


def test_files_keep_the_calibrator(tmp_path: Path) -> None:
    fitted = one_step()
    fitted.save(tmp_path / "a.safetensors")
    again = LocalTemperature.load(tmp_path / "a.safetensors")
    assert again.card == fitted.card
    logits = torch.from_numpy(scenes(2, seed=5)[0])
    with torch.no_grad():
        p = fitted(logits)
        assert torch.equal(again(logits), p)
        # A constant of a pixel changes nothing.
        shift = torch.randn(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(fitted(logits + shift), p)
        torch.testing.assert_close(fitted.log_probabilities(logits).exp(), p)


@pytest.mark.parametrize(
    "change", [{"width": 3}, {"kernel": 10**6 + 1}, {"temperature": -1.0}, {"classes": 10**9}, None]
)
def test_damaged_files_are_refused(change: dict[str, Any] | None, tmp_path: Path) -> None:
    fitted, path = one_step(), tmp_path / "a.safetensors"
    metadata = None
    if change is not None:
        card = msgspec.structs.replace(fitted.card, **change)
        metadata = {"card": msgspec.json.encode(card).decode()}
    safetensors.torch.save_file(fitted.state_dict(), path, metadata)
    with pytest.raises(CorruptError, match="not a local temperature"):
        LocalTemperature.load(path)
    path.write_bytes(b"0")
    with pytest.raises(CorruptError, match="not a local temperature"):
        LocalTemperature.load(path)
    with pytest.raises(InputError, match=r"path.*no-file"):
        LocalTemperature.load(tmp_path / "no-file")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": np.zeros((4, K, 12))}, "logits"),
        ({"labels": np.zeros((4, 12, 11), int)}, r"labels.*\(4, 12, 12\)"),
        ({"ignore_index": None}, "labels.*255.*0 to 2"),
        ({"images": np.zeros((4, 1, 5, 5))}, r"images.*\(4, C, 12, 12\)"),
        ({"kernel": 4}, "kernel.*odd"),
        ({"held_out": 1.0}, "held_out"),
    ],
)
def test_invalid_input_names_its_field(changes: dict[str, Any], message: str) -> None:
    logits, labels, _ = scenes(4)
    arguments = {"logits": logits, "labels": labels, "ignore_index": VOID, **changes}
    with pytest.raises(InputError, match=message):
        fit_local_temperature(**arguments)


def test_images_are_refused_by_a_calibrator_of_logits() -> None:
    logits = torch.zeros(1, K, 4, 4)
    with pytest.raises(InputError, match=r"images.*\(1, 1, 4, 4\).*None"):
        one_step()(logits, torch.zeros(1, 1, 4, 4))
    with pytest.raises(InputError, match=r"logits.*\(N, 3, H, W\)"):
        one_step()(logits[:, :2])
