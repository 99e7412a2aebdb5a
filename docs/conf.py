"""The documentation as a web site: `make docs` writes it into `site/`."""

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import recalib
from docs import reference_members, reference_rest, reference_tables

project, html_title, version = "Recalib", "Recalib", recalib.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Pages stay where a reader of the repository finds them.
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**",
    "benchmarks/*.md",
    "benchmarks/*/*.md",
    "examples/*/*.md",
]
# The search for pages does not enter other folders.
exclude_patterns = [
    "docs/*.py",
    ".*",
    *["build", "dist", "proto", "recalib", "service", "site", "tests", "training"],
]
root_doc = "docs/README"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
default_role = "code"
# Two classes may have one name, in different modules.
suppress_warnings = ["ref.python"]
html_theme = "pydata_sphinx_theme"
html_additional_pages = {"index": "first.html"}
templates_path = ["templates"]
html_static_path, html_css_files = ["static"], ["site.css"]
html_copy_source = html_show_sphinx = False
html_theme_options = {"show_toc_level": 2, "navbar_center": [], "navigation_with_keys": False}
html_sidebars = {"**": ["pages.html"]}

#: Modules of the reference.
_MODULES = [
    "recalib",
    "recalib.metrics",
    "recalib.maps",
    "recalib.objectives",
    "recalib.drift",
    "recalib.losses",
    "recalib.torch",
    "recalib.torchmetrics",
    "recalib.lightning",
    "recalib.transformers",
    "recalib.recorder",
    "recalib.sklearn",
    "recalib.llm",
    "recalib.client",
    "recalib.scale",
    "recalib.replay",
    "recalib.errors",
]
#: Pages of the reference that are written from the code, by name.
_PAGES = {
    "commands": reference_tables.commands,
    "rest": reference_rest.rest,
    "rest-schemas": reference_rest.schemas,
    "grpc": reference_rest.grpc,
    "prometheus": reference_tables.prometheus,
    "errors": reference_tables.error_classes,
    "formats": reference_tables.formats,
}
#: Tables that are written from the code, and end a page.
_APPENDICES = {
    "docs/data": reference_members.training_data,
    "docs/losses": reference_members.losses,
    "docs/maps": reference_members.objectives,
    "docs/metrics": reference_members.metrics,
    "docs/settings": reference_tables.settings,
    "docs/training": reference_tables.recipes,
}
_PARAMETER = re.compile(r"^(\*{0,2}\w+(?:,\s+\*{0,2}\w+)*): (\S.*)$", re.MULTILINE)
_SECTION = re.compile(r"^## ([^\n]+)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([\w./-]+)\.md\)")


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Add pages to the navigation: those that the sections of the index link, or of the folder."""
    if page in _APPENDICES:
        source[0] += "\n" + _APPENDICES[page]()
    if not page.endswith("/README"):
        return
    if page == root_doc:
        rows = {title: " ".join(_ROW.findall(text)) for title, text in _SECTION.findall(source[0])}
        sections = {title: _LINK.findall(text) for title, text in rows.items()}
        sections["Reference"] = [f"reference/{page}" for page in _PAGES]
        sections["Python reference"] = [f"reference/{module}" for module in _MODULES]
    else:
        folder = (Path(app.srcdir) / page).parent
        found = [*folder.glob("*.md"), *folder.glob("*/README.md")]
        pages = [str(path.relative_to(folder).with_suffix("")) for path in sorted(found)]
        sections = {"": [name for name in pages if name != "README"]}
    for title, pages in sections.items():
        options = [":hidden:", f":caption: {title}"][: 2 if title else 1]
        source[0] += "\n".join(["\n", "```{toctree}", *options, *pages, "```"])


def _write_reference(app: Sphinx) -> None:
    """Write a page for each module, and the pages of the other interfaces."""
    folder = Path(app.srcdir) / "docs" / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for module in _MODULES:
        text = f"{module}\n{'=' * len(module)}\n\n.. automodule:: {module}\n   :members:\n"
        if module == "recalib.client":  # whose methods are those of its bases
            text += "   :inherited-members: BaseException,BaseModel,Struct,tuple\n"
        (folder / f"{module}.rst").write_text(text)
    for name, page in _PAGES.items():
        (folder / f"{name}.md").write_text(page())


def _separate_names(_: Sphinx, *arguments: Any) -> None:
    """Put the text of `name: text` in a section of a docstring below the name, as NumPy has it."""
    lines: list[str] = arguments[-1]
    sections = "\n".join(lines).split("\n---", 1)
    if len(sections) == 2:
        sections[1] = _PARAMETER.sub(
            lambda found: " ".join(found[1].split()) + f"\n    {found[2]}", sections[1]
        )
        lines[:] = "\n---".join(sections).split("\n")


def _is_skipped(*arguments: Any) -> bool | None:
    """Skip the methods that scikit-learn makes for metadata."""
    return True if re.fullmatch(r"set_\w+_request", arguments[2]) else None


def _visit_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which needs no script."""
    is_block = isinstance(node, nodes.math_block)
    translator.body.append(tex2mathml(node.astext(), as_block=is_block))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect the functions of this file."""
    renderer = (_visit_math, None)
    app.add_html_math_renderer("mathml", inline_renderers=renderer, block_renderers=renderer)
    app.connect("autodoc-process-docstring", _separate_names, priority=400)
    app.connect("autodoc-skip-member", _is_skipped)
    app.connect("source-read", _add_navigation)
    app.connect("builder-inited", _write_reference)
