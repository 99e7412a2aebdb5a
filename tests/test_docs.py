"""The documents agree with the code, and their links and paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import recalib
from recalib.client import Client
from recalib.maps import MAPS
from recalib.metrics import METRICS, Metric, StreamingMetric
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES
from recalib.settings import Settings

_METRICS_DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
_MAPS_DOCUMENT = Path(__file__).parents[1] / "docs" / "maps.md"


def rows_of(heading: str) -> dict[str, str]:
    """Return the last cell of each row of the table under `heading`, by name."""
    section = _MAPS_DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", section, flags=re.MULTILINE)
    return dict(cells)


def test_every_map_is_listed_with_what_it_preserves() -> None:
    listed = rows_of("Maps")
    assert set(listed) == set(MAPS), "each map needs one row in the first table of docs/maps.md"
    text = _MAPS_DOCUMENT.read_text()
    for name, keeps in listed.items():
        order = "yes" if MAPS[name]().preserves_order else "no"
        assert re.search(rf"^\| `{name}` \|.*\| {order} \| {keeps} \|$", text, re.MULTILINE), name
        if keeps == "`target=top_label`":
            assert MAPS[name](target="top_label").preserves_accuracy  # type: ignore[call-arg]
            other = MAPS[name](target="positive_class")  # type: ignore[call-arg]
            assert not other.preserves_accuracy
        else:
            assert MAPS[name]().preserves_accuracy == (keeps == "yes")


def test_every_objective_is_listed() -> None:
    listed = rows_of("Objectives")
    assert set(listed) == set(OBJECTIVES), "each objective needs one row in docs/maps.md"


def test_every_metric_is_listed_with_its_properties() -> None:
    """In the order of METRICS: summary, range, interval, floor, and whether states merge."""
    text = _METRICS_DOCUMENT.read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(METRICS), (
        "each metric needs one row in docs/metrics.md"
    )
    rng = np.random.default_rng(0)
    estimates = {}
    for classes in (2, 6):  # every metric is defined for one of them
        p, y = rng.dirichlet(np.full(classes, 0.1), 60), rng.integers(0, classes, 60)
        names = [name for name in METRICS if METRICS[name].is_defined_for(classes)]
        estimates |= evaluate(y, probabilities=p, metrics=names, level=0.95)
    yes_or_no = {True: "yes", False: "no"}
    for name, row in rows:
        metric = METRICS[name]
        summary, source, values, *columns = row.split(" | ")
        assert summary == metric.summary
        assert source
        assert f"range {values}" in " ".join(str(metric.__doc__).split()), name
        estimate = estimates[name]
        assert columns == [
            yes_or_no[estimate.low is not None],
            yes_or_no[estimate.floor is not None],
            _merging(metric),
        ], name


def _merging(metric: type[Metric]) -> str:
    """The column *merges*: a state with an error bound rounds confidences to cells."""
    if not issubclass(metric, StreamingMetric):
        return "no"
    return "yes" if metric.error_bound is StreamingMetric.error_bound else "cells"


def test_metrics_that_are_measured_by_name_only_are_named() -> None:
    paragraph = next(
        text
        for text in _METRICS_DOCUMENT.read_text().split("\n\n")
        if "only if they are named" in text
    )
    on_request = [name for name, metric in METRICS.items() if metric.on_request]
    assert re.findall(r"`(\w+)`", paragraph) == on_request


def test_metrics_without_a_weighted_form_are_named() -> None:
    section = _METRICS_DOCUMENT.read_text().split("## Weights\n")[1].split("\n## ")[0]
    sentence = section.split("refused with weights:")[1].split(".\n")[0]
    without = [name for name, metric in METRICS.items() if not metric.takes_weights]
    assert re.findall(r"`(\w+)`", sentence) == without


_ROOT = Path(__file__).parents[1]
_PAGES = [
    *(
        _ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")
    ),
    *(_ROOT / "docs").rglob("*.md"),
]
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+://)([^)#\s]*)(?:#([^)\s]+))?\)")
_PATH = re.compile(r"`((?:recalib|service|training|tests|benchmarks|deploy|proto|docs)/[\w./-]+)`")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_relative_links_point_to_existing_files_and_headings(page: Path) -> None:
    missing = []
    for path, anchor in _LINK.findall(_CODE.sub("", page.read_text())):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_paths_in_code_style_exist(page: Path) -> None:
    """Paths with placeholders (NAME, NNNN) are not checked."""
    paths = [path for path in _PATH.findall(page.read_text()) if not re.search("[A-Z]{4}", path)]
    assert [path for path in paths if not (_ROOT / path).exists()] == []


@pytest.mark.parametrize("folder", ["docs", "docs/decisions"])
def test_indexes_list_every_page(folder: str) -> None:
    pages = {page.name for page in (_ROOT / folder).glob("*.md")} - {"README.md"}
    assert pages <= set(
        re.findall(r"\]\(([^)#/]+\.md)\)", (_ROOT / folder / "README.md").read_text())
    )


#: Examples that need MLflow run in `tests/clients/with_mlflow.py`, examples that need a server in
#: `tests/client` (`test_evaluation_command.py`, `test_batch_command.py`, `test_replay_command.py`,
#: and `test_model_management.py`).
_RUN_ELSEWHERE = {
    "batches.md",
    "evaluations.md",
    "interoperability.md",
    "models.md",
    "replay.md",
}


@pytest.mark.parametrize(
    "page",
    sorted(
        {page.name for page in (_ROOT / "docs").glob("*.md") if "```python" in page.read_text()}
        - _RUN_ELSEWHERE
    ),
)
def test_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (_ROOT / "docs" / page).read_text(), re.DOTALL)
    assert examples
    namespace: dict[str, object] = {}
    for example in examples:
        exec(example, namespace)  # noqa: S102
    # A DuckDB connection holds a function, whose globals hold the connection: a cycle in C++ that
    # the garbage collector cannot free, and that DuckDB reports at the end of the process.
    namespace.clear()


def test_python_page_lists_the_public_names() -> None:
    text = (_ROOT / "docs" / "python.md").read_text()
    names = set(re.findall(r"`(?:recalib\.)?(\w+)", text))
    methods = {name for name in dir(Client) if not name.startswith("_")}
    assert methods | set(recalib.__all__) - {"__version__"} <= names


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_make_targets_modules_and_settings_exist(page: Path) -> None:
    text = page.read_text()
    targets = re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= set(targets)
    modules = re.findall(r"python -m ((?:benchmarks|recalib|service|tests)[\w.]*)", text)
    for module in modules:
        path = _ROOT / module.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    settings = {f"RECALIB_{name.upper()}" for name in Settings.model_fields}
    settings |= {f"{name}_FILE" for name in settings}
    settings |= {"RECALIB_API_KEY", "RECALIB_KEY", "RECALIB_SERVER"}  # the client's
    settings |= set(re.findall(r"\$\{(\w+)", (_ROOT / "docker-compose.yml").read_text()))
    assert set(re.findall(r"RECALIB_[A-Z_]*[A-Z]", text)) <= settings
