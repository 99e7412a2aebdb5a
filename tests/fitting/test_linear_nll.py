"""Newton's method for linear maps: the unique minimum of a convex problem."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from recalib.core.arrays import check_weights
from recalib.errors import InputError
from recalib.fitting import linear_maps
from recalib.fitting.fit import fit
from recalib.fitting.gradient import fit_by_gradient
from recalib.fitting.linear_design import DiagonalDesign, FullDesign
from recalib.fitting.linear_maps import LINEAR_MAPS, fit_linear
from recalib.fitting.linear_nll import LinearNll, RidgePenalty
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.request import configure_pair
from recalib.fitting.solvers import PAIR_SOLVERS, solve
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw


def miscalibrated(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn with a slope and an intercept of each class's own."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    slopes, bias = np.exp(rng.normal(size=classes) * 0.3) / 2, rng.normal(size=classes)
    return logits, (logits * slopes + bias + rng.gumbel(size=logits.shape)).argmax(axis=1)


def problem_of(name: str, logits: np.ndarray, labels: np.ndarray, **options) -> Problem:
    the_map, objective = configure_pair(name, "nll", options)
    return Problem(the_map, objective, logits, labels)


def by_torch(problem: Problem) -> Solution:
    single = fit_temperature(problem.logits, problem.labels, problem.weights)
    return fit_by_gradient(problem, problem.map.start(problem.classes, single.temperature))


def test_every_linear_map_has_a_solver() -> None:
    for name in LINEAR_MAPS:
        assert PAIR_SOLVERS[name, "nll"] is fit_linear


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LINEAR_MAPS)
def test_gradient_method_reaches_the_same_optimum(name: str, weighted: bool, masked: bool) -> None:
    """Newton's method in NumPy against gradient descent in torch."""
    logits, labels = miscalibrated(300, 4)
    rng = np.random.default_rng(1)
    if masked:
        out = rng.random(logits.shape) < 0.2
        out[np.arange(300), labels] = False
        logits[out] = -np.inf
    problem = problem_of(name, logits, labels)
    if weighted:
        weights = check_weights(rng.random(300), rows=300)
        problem = Problem(problem.map, problem.objective, logits, labels, weights)
    ours, theirs = fit_linear(problem), by_torch(problem)
    assert ours.converged
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-7)


def slow_objective(problem: Problem, parameters: dict[str, np.ndarray]) -> float:
    """NLL plus penalty, row by row from the formulas in the docstrings."""
    name, rows, classes = problem.map.name, len(problem.labels), problem.classes
    total = 0.0
    for z, y in zip(problem.logits, problem.labels, strict=True):
        x = z / parameters["temperature"] if name.startswith("structured") else z
        if name == "class_temperature":
            s = z / parameters["temperature"]
        else:
            if name != "vector" and name != "matrix":
                x = x - np.log(sum(np.exp(value) for value in x))
            weights = parameters["matrix"].T if "matrix" in parameters else parameters["scale"]
            s = (weights @ x if weights.ndim == 2 else weights * x) + parameters["bias"]
        total += np.log(sum(np.exp(value) for value in s)) - s[y]
    value = total / rows
    if name == "vector":
        value += problem.map.intercept / rows * (parameters["bias"] ** 2).sum()
    if name in ("matrix", "dirichlet"):
        the_map = problem.map
        w = parameters["matrix"]
        diagonal = np.diag(w)
        usual = 10 * classes**2 / rows
        is_l2 = getattr(the_map, "regularisation", "odir") == "l2"
        mu = the_map.intercept
        if mu is None:
            mu = 5_000 / rows if is_l2 else usual
        if not is_l2:
            worth = (usual, usual * (classes - 1) ** 2)
            strengths = (
                the_map.diagonal,
                the_map.off_diagonal if name == "matrix" else the_map.strength,
            )
            delta, strength = (b if a is None else a for a, b in zip(strengths, worth, strict=True))
            value += delta / classes * sum((d - diagonal.mean()) ** 2 for d in diagonal)
            off = (w**2).sum() - (diagonal**2).sum()
            value += strength * off / (classes * (classes - 1))
        else:
            value += 2_500 / rows * (w**2).sum() / classes**2
        value += mu / classes * (parameters["bias"] ** 2).sum()
    if name == "structured_vector":
        c = 1 + 10 * 2 * classes / rows
        value += c * classes / rows * ((parameters["scale"] - 1) ** 2).sum()
        value += c * classes / rows * (parameters["bias"] ** 2).sum()
    if name == "structured_matrix":
        w, c = parameters["matrix"], 1 + 10 * classes * (classes + 1) / rows
        value += c * classes / rows * ((np.diag(w) - 1) ** 2).sum()
        off = (w**2).sum() - (np.diag(w) ** 2).sum()
        value += c * classes * (classes - 1) / rows * off
        value += c * classes / rows * (parameters["bias"] ** 2).sum()
    return float(value)


#: Strengths at which every term of the penalty counts, and as published, without ties.
SOFT = {"diagonal": 0.5, "intercept": 0.2}
FORMS = [
    *((name, {}) for name in LINEAR_MAPS),
    ("dirichlet", {"regularisation": "l2"}),
    ("dirichlet", {**SOFT, "strength": 0.3}),
    ("matrix", {**SOFT, "off_diagonal": 0.3}),
    ("matrix", {"diagonal": 0.0, "off_diagonal": 100.0, "intercept": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_no_lower_point_by_the_plain_formula(name: str, options: dict) -> None:
    """scipy finds no lower point nearby, from values of a slow loop."""
    problem = problem_of(name, *miscalibrated(30, 3), **options)
    result = fit_linear(problem)
    assert result.objective == pytest.approx(slow_objective(problem, result.parameters), abs=1e-10)
    skipped = {"temperature"} if name.startswith("structured") else set()
    free = {key: value for key, value in result.parameters.items() if key not in skipped}
    sizes = np.cumsum([value.size for value in free.values()])[:-1]

    def at(vector: np.ndarray) -> float:
        parts = zip(free, np.split(vector, sizes), strict=True)
        moved = {key: part.reshape(free[key].shape) for key, part in parts}
        return slow_objective(problem, result.parameters | moved)

    start = np.concatenate([value.reshape(-1) for value in free.values()])
    lowest = scipy.optimize.minimize(at, start * 1.02 + 0.01, method="BFGS")
    assert result.objective <= lowest.fun + 1e-9
    assert lowest.fun == pytest.approx(result.objective, abs=1e-6)


def test_dirichlet_with_l2_equals_scikit_learn_logistic_regression() -> None:
    """scikit-learn does not penalise intercepts; an option does the same here."""
    logits, labels = miscalibrated(400, 4)
    l2 = {"regularisation": "l2", "strength": 0.1, "intercept": 0.0}
    result = fit_linear(problem_of("dirichlet", logits, labels, **l2))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    # It minimises C Σ NLL + ½ |W|²; ours is NLL / N + λ / K² |W|².
    c = 4**2 / (2 * 400 * 0.1)
    theirs = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(log_p, labels)
    np.testing.assert_allclose(result.parameters["matrix"].T, theirs.coef_, atol=1e-4)


def test_intercepts_of_constant_logits_give_class_frequencies() -> None:
    """Closed form: with constant logits, p is how often each class occurs.

    The penalty, a hundredth of a row's weight in a hundred rows, moves it by 2 · 10⁻⁴ · b.
    """
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    calibrator = fit(np.zeros((100, 3)), labels, "vector")
    np.testing.assert_allclose(calibrator.predict(np.zeros((1, 3)))[0], [0.5, 0.3, 0.2], atol=2e-4)
    assert calibrator.parameters["bias"].sum() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", ["structured_vector", "structured_matrix"])
@pytest.mark.parametrize(("rows", "classes"), [(20, 10), (50, 100)])
def test_structured_maps_stay_near_temperature_scaling_for_few_rows(
    name: str, rows: int, classes: int
) -> None:
    """On new rows: within 2% of temperature's NLL."""
    logits, labels = draw(rows, classes, 2.0)
    new_logits, new_labels = draw(2000, classes, 2.0, seed=1)

    def nll(which: str) -> float:
        p = fit(logits, labels, which).predict(new_logits)
        return float(-np.log(p[np.arange(2000), new_labels]).mean())

    assert nll(name) < 1.02 * nll("temperature")


@pytest.mark.parametrize("name", LINEAR_MAPS)
@pytest.mark.parametrize("scale", [1e-20, 4000.0, 1e25])
def test_fit_is_independent_of_logit_scale(name: str, scale: float) -> None:
    logits, labels = miscalibrated(200, 4)
    if name == "dirichlet" and scale == 1e-20:
        pytest.skip("the softmax of such logits is uniform to the last bit")
    scaled = fit_linear(problem_of(name, logits * scale, labels))
    assert scaled.converged
    assert all(np.isfinite(value).all() for value in scaled.parameters.values())
    if name not in ("matrix", "dirichlet"):  # their penalties have the logits' unit
        plain = fit_linear(problem_of(name, logits, labels))
        assert scaled.objective == pytest.approx(plain.objective, abs=1e-7)


@pytest.mark.parametrize("name", LINEAR_MAPS)
def test_class_order_does_not_change_the_fit(name: str) -> None:
    logits, labels = miscalibrated(300, 5)
    order = np.random.default_rng(0).permutation(5)
    solution = fit_linear(problem_of(name, logits, labels))
    other = fit_linear(problem_of(name, logits[:, order], np.argsort(order)[labels]))
    assert solution.objective == pytest.approx(other.objective, abs=1e-9)


@pytest.mark.parametrize("name", LINEAR_MAPS)
def test_warm_start_takes_fewer_steps_to_the_same_optimum(name: str) -> None:
    problem = problem_of(name, *miscalibrated(500, 5))
    cold = fit_linear(problem)
    start = cold.parameters
    warm = fit_linear(Problem(problem.map, problem.objective, problem.logits, problem.labels,
                              start=start))  # fmt: skip
    assert warm.objective == pytest.approx(cold.objective, abs=1e-9)
    assert warm.iterations < cold.iterations


@pytest.mark.parametrize("name", ["structured_vector", "structured_matrix"])
def test_warm_start_does_not_keep_the_old_temperature(name: str) -> None:
    logits, labels = miscalibrated(500, 5)
    earlier = fit(logits * 3, labels, name)
    cold, warm = fit(logits, labels, name), fit(logits, labels, name, start=earlier)
    assert warm.parameters["temperature"] == cold.parameters["temperature"]
    assert warm.card.fit.objective == pytest.approx(cold.card.fit.objective, abs=1e-9)


@pytest.mark.parametrize("name", LINEAR_MAPS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_large_float16_and_float32_data_matches_float64(
    name: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large inputs take float32 steps; the last steps are in float64."""
    monkeypatch.setattr(linear_maps, "_LARGE", 1_000)
    logits, labels = miscalibrated(2_000, 6)
    narrow = logits.astype(dtype)
    solution = fit_linear(problem_of(name, narrow, labels))
    other = fit_linear(problem_of(name, narrow.astype(np.float64), labels))
    assert solution.objective == pytest.approx(other.objective, abs=1e-8)


@pytest.mark.parametrize(
    ("name", "most"), [("matrix", 500), ("dirichlet", 500), ("structured_matrix", 5000)]
)
def test_too_many_classes_are_rejected_before_allocation(name: str, most: int) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 50_000)).astype(np.float32)
    tracemalloc.start()
    with pytest.raises(
        InputError, match=f"map: found {name}.*50000.*at most {most} classes"
    ) as excinfo:
        fit(logits, np.arange(5), name)
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert excinfo.value.field == "map"


@pytest.mark.parametrize("name", LINEAR_MAPS)
def test_separable_data_reports_the_bound(name: str) -> None:
    logits, _ = draw(100, 4, 1.0)
    card = fit(logits, logits.argmax(axis=1), name).card
    assert any("bound" in parameter for parameter in card.fit.bounds_reached)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "much"])
def test_invalid_strengths_are_rejected(bad: object) -> None:
    with pytest.raises(InputError, match="options"):
        fit(*draw(50, 3, 1.0), "matrix", off_diagonal=bad)


@pytest.mark.parametrize(
    "design", [DiagonalDesign(), DiagonalDesign(intercept=False), FullDesign()]
)
@pytest.mark.parametrize("classes", [3, 50])
def test_derivatives_agree_with_finite_differences(
    design: DiagonalDesign | FullDesign, classes: int
) -> None:
    rng = np.random.default_rng(0)
    x, labels = miscalibrated(40, classes)
    masked = rng.random(x.shape) < 0.1
    masked[np.arange(40), labels] = False
    width = classes + 1 if isinstance(design, FullDesign) else 1 + design.intercept
    theta, strength, centre = rng.random((3, classes, width))
    weights = check_weights(rng.random(40), rows=40)
    nll = LinearNll(design, x, masked, labels, weights, RidgePenalty(strength, centre))
    here, direction, step = nll.around(theta), rng.normal(size=theta.shape), 1e-6
    up, down = (nll.around(theta + sign * step * direction) for sign in (1, -1))
    slope = (up.value - down.value) / (2 * step)
    assert np.vdot(here.gradient, direction) == pytest.approx(slope, rel=1e-6)
    bend = (up.gradient - down.gradient) / (2 * step)
    np.testing.assert_allclose(here.product(direction), bend, rtol=1e-5, atol=1e-7)
    # A stand-in for the inverse has to be symmetric and positive, or conjugate gradients fail.
    solve, other = here.preconditioner(), rng.normal(size=theta.shape)
    assert np.vdot(solve(direction), other) == pytest.approx(np.vdot(direction, solve(other)))
    assert np.vdot(solve(direction), direction) > 0


@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_few_rows_stay_near_temperature_scaling(name: str) -> None:
    """On new rows. Without the penalty, a class without errors has no finite optimum."""
    logits, labels = draw(60, 5, 2.0)
    others, truth = draw(5_000, 5, 2.0, 1)
    losses = {}
    for key, options in {"temperature": {}, name: {}, "untied": {"diagonal": 0.0}}.items():
        problem = problem_of(name if key == "untied" else key, logits, labels, **options)
        log_p = problem.map.log_probabilities(NumpyOps(), others, solve(problem).parameters)
        losses[key] = -log_p[np.arange(5_000), truth].mean()
    assert losses[name] < losses["temperature"] * 1.02
    assert losses[name] < losses["untied"]
