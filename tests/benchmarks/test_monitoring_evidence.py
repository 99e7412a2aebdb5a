"""The page of evidence has the form that its command writes."""

from __future__ import annotations

import pytest

from benchmarks.monitoring.evidence import (
    PAGE,
    SECTIONS,
    Section,
    block,
    read,
    read_closed,
    render,
    run,
)


def test_page_is_what_the_command_writes() -> None:
    """Only the outputs are not determined by the sections."""
    page = PAGE.read_text()
    assert render(read(page), read_closed(page)) == page, (
        "python -m benchmarks.monitoring.evidence NAME"
    )


@pytest.mark.parametrize("name", read(PAGE.read_text()))
def test_outputs_are_complete(name: str) -> None:
    """They come from the benchmark, have figures, and end without an error."""
    lines = read(PAGE.read_text())[name].splitlines()
    assert lines[1].startswith(f"$ python -m {SECTIONS[name].module}")
    assert sum("%" in line for line in lines) >= 5
    assert "Traceback" not in "".join(lines)


def test_a_block_replaces_that_of_its_benchmark() -> None:
    blocks = {name: block(section.command, f"{name}: 1%") for name, section in SECTIONS.items()}
    assert read(render(blocks)) == blocks
    text = block(f"{SECTIONS['selection'].command} --draws 3", "\n  a\n\nb  \n\n")
    assert text == f"```text\n$ {SECTIONS['selection'].command} --draws 3\n  a\n\nb\n```\n"
    changed = read(render({**blocks, "selection": text}))
    assert changed == {**blocks, "selection": text}
    page = render({"selection": text})
    assert list(read(page)) == ["selection"]
    assert f"`{SECTIONS['class_wise'].command}` has not run for this version." in page


@pytest.mark.slow
def test_a_benchmark_is_run() -> None:
    """With few draws, which may miss a goal."""
    arguments = ("--draws", "1", "--streams", "1")
    section = Section("title", "text", "benchmarks.monitoring.selection", arguments)
    text, _ = run(section)
    assert text.startswith("```text\n$ python -m benchmarks.monitoring.selection --draws 1 --str")
    assert "calibrated, no selection" in text
