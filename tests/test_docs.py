"""The documents agree with the code, and their links and paths exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from docs import reference_members
from recalib.cli import root_command
from recalib.losses import LOSSES
from recalib.maps import MAPS
from recalib.metrics import METRICS
from recalib.objectives import OBJECTIVES
from recalib.settings import Settings
from tests.pages import assert_same_output, calls_server, run_page

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


def test_every_metric_and_loss_is_listed() -> None:
    """With its properties on the site; on the page by its name."""
    names = _METRICS_DOCUMENT.read_text().split("## Names\n")[1].split("\n\n`")[0]
    assert set(re.findall(r"`(\w+)`", names)) == set(METRICS)
    page = reference_members.metrics()
    assert re.findall(r"^### `(\w+)`", page, re.MULTILINE) == list(METRICS)
    for row in (
        "| [`ece`](#ece) | expected calibration error, equal-width bins | [0, 1] | yes | yes | yes",
        "| [`nll`](#nll) | mean negative log-likelihood, in nats; a proper score | [0, ∞) | yes |",
        "by a kernel as wide as the error | [0, 1] | yes | yes | cells |",
    ):
        assert row in page
    assert re.findall(r"^### `(\w+)`", reference_members.losses(), re.MULTILINE) == list(LOSSES)
    listed = re.findall(r"^### `(\w+)`", reference_members.objectives(), re.MULTILINE)
    assert listed == list(OBJECTIVES)


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


@pytest.mark.parametrize(
    ("picture", "family"),
    [("losses", LOSSES), ("maps", MAPS), ("metrics", METRICS), ("objectives", OBJECTIVES)],
)
def test_every_member_is_in_the_picture_of_its_family(picture: str, family: object) -> None:
    text = (_ROOT / "docs" / "images" / f"{picture}.svg").read_text()
    assert len(text) < 80_000
    titles = set(re.findall(r">([a-z][a-z0-9_]+)<", text))
    assert set(family) <= titles, "run python -m docs.pictures"  # type: ignore[call-overload]


_ROOT = Path(__file__).parents[1]
_PAGES = [
    *(_ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(_ROOT / "benchmarks").rglob("*.md"),
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
    """Paths with placeholders (NAME, NNNN), and what benchmarks write, are not checked."""
    paths = _PATH.findall(page.read_text())
    paths = [path for path in paths if not re.search("[A-Z]{4}|^benchmarks/results", path)]
    assert [path for path in paths if not (_ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("index", "folder"),
    [
        ("docs", "docs"),
        ("docs", "docs/tutorials"),
        ("docs", "docs/how-to"),
        ("docs/decisions", "docs/decisions"),
    ],
)
def test_indexes_list_every_page(index: str, folder: str) -> None:
    pages = {*(_ROOT / folder).glob("*.md")} - {_ROOT / folder / "README.md"}
    links = re.findall(r"\]\(([^)#]+\.md)\)", (_ROOT / index / "README.md").read_text())
    assert pages <= {(_ROOT / index / link).resolve() for link in links}


#: Examples that need MLflow run in `tests/clients/with_mlflow.py`, examples that need a server in
#: `tests/client` (`test_evaluation_command.py`, `test_batch_command.py`, `test_replay_command.py`,
#: and `test_model_management.py`).
_RUN_ELSEWHERE = {"batches.md", "evaluations.md", "mlflow.md", "models.md", "replay.md"}
#: They train, or start a program for each command.
_SLOW = {
    "calibration.md",
    "choose-a-map.md",
    "gallery.md",
    "gpu-worker.md",
    "keys.md",
    "network.md",
    "proxy-and-tls.md",
    "rare-class.md",
    "triton-kserve.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in _SLOW), id=page.name)
        for page in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))
        if ("```python" in page.read_text() or page.parent.name == "how-to")
        and page.name not in _RUN_ELSEWHERE
        and not calls_server(page.read_text())
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning:copyreg")  # of torch.export
def test_examples_run_and_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """`python -m tests.pages PAGE` writes what they print."""
    assert_same_output(run_page(page, tmp_path), page.read_text())


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


_COMMAND = re.compile(r"(?<!namespace )\brecalib (\w[^|>;&#`]*)")


@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if page.name != "CHANGELOG.md" and page.parent.name != "decisions"],
    ids=lambda page: str(page.relative_to(_ROOT)),
)
def test_commands_and_their_options_exist(page: Path) -> None:
    """In code, those of `recalib NAME` or `recalib NAME SUBCOMMAND`."""
    text = page.read_text().replace("\\\n", " ")
    lines = "\n".join(re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)).splitlines()
    lines += re.findall(r"`(recalib [^`\n]+)`", text)
    calls = [match[1].split() for line in lines for match in _COMMAND.finditer(line)]
    for name, *words in calls:
        command: Any = root_command().commands[name]
        if words and hasattr(command, "commands"):
            command.list_commands(None)  # those of `recalib api` are made when they are needed
            command = command.commands.get(words[0], command)
        options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        used = set(re.findall(r"(?<!\S)--[\w-]+", " ".join(words)))
        assert used <= options | {"--help"}, (name, words)


def _numbers(cell: str) -> set[str]:
    """Return the tables and figures that a cell names: "tables 5 to 7" are three."""
    named = set()
    for kind, first, joint, last in re.findall(
        r"(table|figure)s? ([0-9]+|[A-Z]\b)[a-z]?(?: (and|to) ([0-9]+)\b)?", cell
    ):
        between = range(int(first), int(last) + 1) if joint == "to" else [first, last]
        named |= {f"{kind} {number}" for number in between if number}
    return named


def test_papers_page_has_every_table_and_figure_and_names_what_exists() -> None:
    page = (_ROOT / "benchmarks" / "papers.md").read_text()
    sections = dict(re.findall(r"^## (00\d)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    # Figures and tables of the appendix of 002 have numbers of their own, which are no larger.
    expected = {"000": (10, 6, ""), "001": (3, 6, "AB"), "002": (6, 4, ""), "003": (4, 4, ""),
                "004": (10, 13, "")}  # fmt: skip
    for paper, (figures, tables, letters) in expected.items():
        firsts = re.findall(r"^\| ([^|]+) \|", sections[paper], re.MULTILINE)
        numbers = {f"figure {n}" for n in range(1, figures + 1)}
        numbers |= {f"table {n}" for n in (*range(1, tables + 1), *letters)}
        named = set().union(*map(_numbers, firsts))
        assert numbers <= named, (paper, sorted(numbers - named))
    registries = {"losses": LOSSES, "maps": MAPS, "metrics": METRICS, "objectives": OBJECTIVES}
    makefile = (_ROOT / "Makefile").read_text()
    commands = set(root_command().commands)
    for token in re.findall(r"`([^`]+)`", page):
        words = token.split()
        room, _, name = words[0].partition(".")
        if words[0] == "python":
            assert find_spec(words[2]) is not None, token
        elif words[0] == "make":
            assert f"\n{words[1]}:" in makefile, token
        elif words[0] == "recalib" and len(words) > 1:
            assert words[1] in commands, token
        elif room in registries and name != "jsonl":
            assert name in registries[room], token
        elif room in ("recalib", "benchmarks", "training"):
            assert find_spec(words[0]) is not None, token
