"""Registered networks keep the model contract, and have the published sizes."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import training.models
from recalib.errors import InputError
from training.models import MODELS, build, check_model, head

_FACTS = {"channels": 3, "features": 12, "vocabulary": 40}
#: Small variants of large networks.
_SMALL: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 4},
    "resnet101": {"width": 4},
    "wide_resnet": {"depth": 10, "widen": 1, "dropout": 0.2},
    "densenet121": {"growth": 4},
    "tree_lstm": {"width": 7, "embedding": 5},
}
#: Weights in millions as their sources print them; the last, of ResNet-50 and DenseNet-121 with a
#: 3x3 stem and ten classes, are 25.557 - 2.049 + .0205 - .0077 (the 7x7 stem's 9,408 weights
#: against 1,728) and 7.979 - 1.025 + .01025 - .0077.
_PUBLISHED = {
    "resnet20": 0.27,
    "resnet32": 0.46,
    "resnet56": 0.85,
    "resnet110": 1.7,
    "preresnet110": 1.7,
    "wide_resnet": 36.5,
    "densenet40": 1.0,
    "resnet50": 23.521,
    "densenet121": 6.956,
}


#: One network of each kind. The others are its deeper or wider forms.
_SHORT = ("linear", "resnet20", "resnet50", "text_cnn", "tree_lstm", "segmenter")
short_names = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in _SHORT else pytest.mark.slow) for name in MODELS],
)


def _inputs(name: str, rows: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if name == "linear":
        return torch.randn(rows, 3, 4, generator=generator)
    if name == "text_cnn":
        return torch.randint(1, 40, (rows, 9), generator=generator)
    if name == "tree_lstm":
        leaves = [[2, -1, -1, 0], [3, -1, -1, 0], [0, 0, 1, 1], [0, -1, -1, -1]]
        return torch.tensor([leaves] * rows)
    return torch.randn(rows, 3, 32, 32, generator=generator)


def _built(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, 4, facts=_FACTS, **_SMALL.get(name, {}))


@short_names
def test_contract(name: str) -> None:
    """Logits of the promised shape, a gradient for every weight, the head as the last layer."""
    model, inputs = _built(name), _inputs(name)
    logits = model(inputs)
    assert logits.shape == ((5, 4, 32, 32) if name == "segmenter" else (5, 4))
    torch.nn.functional.cross_entropy(logits, torch.zeros(5, *logits.shape[2:]).long()).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    # The output of the head is the output of the network.
    head_outputs: list[Tensor] = []
    head(model).register_forward_hook(lambda module, args, output: head_outputs.append(output))
    assert torch.equal(model.eval()(inputs), head_outputs[0])


@short_names
def test_predictions_do_not_depend_on_the_batch(name: str) -> None:
    """In evaluation a row's logits do not depend on other rows; the seed determines the weights."""
    model, inputs = _built(name).eval(), _inputs(name)
    with torch.no_grad():
        together = model(inputs)
        alone = torch.cat([model(inputs[row : row + 1]) for row in range(len(inputs))])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
        assert torch.equal(_built(name).eval()(inputs), together)
        assert not torch.equal(_built(name, seed=1).eval()(inputs), together)


@pytest.mark.parametrize(("name", "millions"), _PUBLISHED.items())
def test_sizes_are_the_published_ones(name: str, millions: float) -> None:
    """The number of weights matches the sources, counted on the meta device."""
    with torch.device("meta"):
        model = build(name, 10)
    measured = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    digits = len(str(millions).split(".")[1])
    assert measured == pytest.approx(millions, abs=0.6 * 10**-digits)


def test_text_does_not_depend_on_padding() -> None:
    """A text has the same logits in a batch with a longer one."""
    model = _built("text_cnn").eval()
    text = _inputs("text_cnn", 1)
    longer = torch.nn.functional.pad(text, (0, 6))
    torch.testing.assert_close(model(longer), model(text))
    empty = model(torch.zeros(1, 3, dtype=torch.long))
    torch.testing.assert_close(empty[0], head(model).bias)


def test_tree_against_recursion() -> None:
    """The tree network, depth by depth, is the recursion over children that its source states."""
    model = _built("tree_lstm").double().eval()

    def node(tree: Tensor, place: int) -> tuple[Tensor, Tensor]:
        word, left, right, _ = tree[place].tolist()
        if left < 0:
            cell, gate = model.leaf(model.words.weight[word]).chunk(2)  # type: ignore[operator,union-attr]
            return cell, torch.sigmoid(gate) * torch.tanh(cell)
        (c_l, h_l), (c_r, h_r) = node(tree, left), node(tree, right)
        i, o, f_l, f_r, u = model.compose(torch.cat([h_l, h_r])).chunk(5)  # type: ignore[operator]
        cell = (
            torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_l) * c_l + torch.sigmoid(f_r) * c_r
        )
        return cell, torch.sigmoid(o) * torch.tanh(cell)

    # ((5 6) 7) and (5 (6 (7 8))) and a lone leaf.
    padding = [0, -1, -1, -1]
    leaf = [[word, -1, -1, 0] for word in (5, 6, 7, 8)]
    trees = [
        [leaf[0], leaf[1], [0, 0, 1, 1], leaf[2], [0, 2, 3, 2], padding, padding],
        [*leaf, [0, 2, 3, 1], [0, 1, 4, 2], [0, 0, 5, 3]],
        [leaf[3], *[padding] * 6],
    ]
    batch = torch.tensor(trees)
    expected = torch.stack(
        [head(model)(node(tree, root)[1]) for tree, root in zip(batch, (4, 6, 0), strict=True)]
    )
    torch.testing.assert_close(model(batch), expected, rtol=1e-12, atol=1e-12)
    nodes = torch.zeros(batch.shape[:2], dtype=torch.bool)
    nodes[[0, 0, 1, 2], [1, 2, 5, 0]] = True
    expected = torch.stack(
        [head(model)(node(batch[tree], place)[1]) for tree, place in nodes.nonzero().tolist()]
    )
    torch.testing.assert_close(model(batch, nodes), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "classes", "options", "field"),
    [
        ("no_such", 10, {}, "model"),
        ("os.system", 10, {}, "model"),
        ("resnet20", 1, {}, "classes"),
        ("resnet20", 10, {"depth": 8}, "options.depth"),
        ("resnet20", 10, {"width": "16"}, "options.width"),
        ("resnet20", 10, {"width": 0}, "options.width"),
        ("wide_resnet", 10, {"depth": 11}, "options.depth"),
        ("wide_resnet", 10, {"dropout": 1.0}, "options.dropout"),
        ("text_cnn", 10, {}, "options.vocabulary"),
        ("text_cnn", 10, {"vocabulary": 9, "kernel": 4}, "options.kernel"),
        ("resnet20", 10, {"block": "sideways"}, "options.block"),
    ],
)
def test_invalid_names_and_options_are_refused(
    name: str, classes: int, options: dict[str, Any], field: str
) -> None:
    """A name, size or option that does not exist is an error that names the field."""
    with pytest.raises(InputError) as excinfo:
        build(name, classes, **options)
    assert excinfo.value.field == field


@pytest.mark.parametrize("name", MODELS)
def test_check_model_counts_weights(name: str) -> None:
    """The limit is exact, and the generator does not change."""
    count = sum(parameter.numel() for parameter in _built(name).parameters())
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model_arguments = (name, 4, _FACTS, _SMALL.get(name, {}))
    check_model(*model_arguments, count)
    with pytest.raises(InputError, match=f"options: found more than {count - 1} weights"):
        check_model(*model_arguments, count - 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {"features": 10**9}),
        ("linear", {"features": 10**18}),
        ("resnet50", {"width": 2**31}),
        ("wide_resnet", {"widen": 2**62}),
        ("wide_resnet", {"widen": 2**70}),
        ("text_cnn", {"vocabulary": 10, "kernel": 2**40 + 1}),
        ("tree_lstm", {"vocabulary": 2**61}),
        ("segmenter", {"channels": 10**10}),
        # A billion layers of few weights each.
        ("wide_resnet", {"depth": 6 * 10**9 + 4, "widen": 1}),
    ],
)
def test_networks_of_any_size_beyond_the_limit_are_refused(
    name: str, options: dict[str, Any]
) -> None:
    """They are refused before memory is allocated."""
    with pytest.raises(InputError, match="accepted: a network of at most 100000000 weights"):
        check_model(name, 10, {}, options, 100_000_000)


def test_uncountable_network_of_a_package_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the values of its weights during construction, so it is not checked."""

    def make(classes: int, *, width: int = 2) -> nn.Module:
        layer = nn.Linear(width, classes)
        assert float(layer.weight.detach().sum()) < 1e9
        return layer

    monkeypatch.setattr(training.models, "_of_packages", lambda: {"mine": make})
    check_model("mine", 3, {}, {}, 9)
    with pytest.raises(InputError, match="options: found more than 8 weights"):
        check_model("mine", 3, {}, {}, 8)


def test_names_of_packages_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package adds a name by an entry point; built-in names are reserved."""

    def entries(*names: str) -> None:
        entry_list = [
            EntryPoint(n, "training.models.linear:Linear", "recalib.models") for n in names
        ]
        monkeypatch.setattr(training.models, "entry_points", lambda group: entry_list)
        training.models._of_packages.cache_clear()

    try:
        entries("mine")
        assert isinstance(build("mine", 3, features=2), nn.Module)
        entries("resnet20")
        with pytest.raises(InputError, match="a unique name"):
            build("linear", 3, features=2)
    finally:
        training.models._of_packages.cache_clear()


def test_last_layer_may_have_any_name() -> None:
    """`score` of Hugging Face and `heads` of torchvision; a network may be its last layer."""
    for name in ("score", "heads"):
        network = nn.Module()
        network.body, last = nn.Linear(3, 3), nn.Linear(3, 2)
        setattr(network, name, nn.Sequential(last, nn.Dropout()))
        network.norm = nn.LayerNorm(2)
        assert head(network) is last
    assert head(last) is last
    with pytest.raises(InputError, match="without a matrix of weights"):
        head(nn.LayerNorm(2))
