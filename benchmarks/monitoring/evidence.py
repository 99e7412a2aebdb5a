"""`python -m benchmarks.monitoring.evidence [NAME ...]`: write the page of evidence.

It runs the benchmarks of these names, by default all, and puts what they print on the page. The
outputs of the others stay. The exit status is 1 if a benchmark misses a goal.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent / "README.md"

_HEAD = """# Evidence for monitoring

`python -m benchmarks.monitoring.evidence` writes this page. Each section has a command and what it
printed. All streams are simulated, with fixed seeds, so a second run prints the same figures,
except for processor times. Shares have exact intervals of 95% (Clopper and Pearson, 1934).
[monitoring.md](../../docs/monitoring.md) says what follows from them.
"""
#: What follows on the page was measured by benchmarks that are deleted; it stays as it is.
_CLOSED = "<!-- Closed questions -->\n"


class Section(NamedTuple):
    """A benchmark and its place on the page."""

    title: str
    #: What is measured, and the meaning of its terms.
    text: str
    module: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that prints the output."""
        return " ".join(["python -m", self.module, *self.arguments])


#: By the name of the benchmark.
SECTIONS: Mapping[str, Section] = {
    "guarantees": Section(
        "False alarms, delays and intervals",
        """\
Streams of 15,000 labels that are calibrated, or within the tolerance ε = 2%, and streams with a
drift, read by Recalib and by other detectors.

- *Delayed*: errors are reported twice as fast, and cohorts are read when 99% of labels have
  arrived.
- *Tolerated*: accuracy is always 2% off confidence; under a covariate shift; or above first and
  below later.
- *Tuned*: a threshold from simulation of the same streams, or Bonferroni's for a known number of
  windows, whose χ² is only approximately the law of the statistic.
- In order of arrival with errors reported first, and with errors labelled more often, calibrated
  streams look miscalibrated to every detector.
""",
        "benchmarks.monitoring",
    ),
    "unlabelled": Section(
        "Traffic without labels",
        """\
Streams where part of the traffic has no labels. *Interval has ECE*: the last interval contains the
error of all traffic, with and without labels. Where labels stop, the state is fresh before, and the
end is one window of labels later.
With `--streams 200`, labels below .7 only are never fresh (0.0% to 1.8%), and a
predicted class whose labels stop is never fresh at the end (0.0% to 1.8%); all of these intervals
contain the ECE (98.2% to 100.0%).
""",
        "benchmarks.monitoring.unlabelled",
    ),
    "selection": Section(
        "Labels selected by outcome",
        """\
Windows where right and wrong predictions are labelled at different rates. *Interval* assumes that
labels of a bin are random; *band* is `selection_low` to `selection_high`, with the true ratio of
rates or twice this ratio as `selection_ratio`. Then streams of calibrated predictions whose errors
are labelled more often: every state against them names the selection.
""",
        "benchmarks.monitoring.selection",
    ),
    "class_wise": Section(
        "Class-wise monitoring",
        """\
Streams in which only probabilities of single classes are wrong, and calibrated ones, read by the
test of the top label and by the tests of the classes.
""",
        "benchmarks.monitoring.class_wise",
    ),
    "sets": Section(
        "Coverage of prediction sets",
        """\
Streams of labels whose sets promise 90%, read by a monitor with the options of a server: half of α
is for the sets. Fixed thresholds have the spread of their rows: each stream draws its coverage from
the beta distribution of thresholds of 1,000 or 10,000 rows, and the monitor allows for the central
95% of it (`card.sets.low`, `high`) and for the tolerance of 2%, together *allowed*. Coverage that
is exact is monitored with a tolerance of 0. From label 5,137 on, coverage falls by 5 points, or
not; *median labels* are those from the fall to the alarm.
""",
        "benchmarks.monitoring.sets",
    ),
    "expected": Section(
        "Expected accuracy without labels",
        """\
Accuracy, F1 and AUC of a binary classifier under covariate shift, from its probabilities alone:
Recalib with Platt scaling (the map `vector`), and NannyML's CBPE, which fits isotonic regression,
on the same 5,000 labelled rows. *Error* is the mean absolute difference from the value that the
labels of a chunk give. Of one calibrator, *in its interval* includes its luck. Then calibrators
are fitted again and again: the value of 20,000 predictions, in the interval of labels drawn from
the probabilities, and in that which has the sampling error of the calibration set too.
""",
        "benchmarks.monitoring.expected",
    ),
}

_BLOCK = re.compile(r"```text\n\$ python -m ([\w.]+)[^\n]*\n.*?\n```\n", re.DOTALL)


def run(section: Section) -> tuple[str, bool]:
    """Run a benchmark; return its block on the page, and whether it meets its goals."""
    command = [sys.executable, "-m", section.module, *section.arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return block(section.command, result.stdout), result.returncode == 0


def block(command: str, output: str) -> str:
    """Return the block of a command and its output."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "\n".join(["```text", f"$ {command}", *lines, "```", ""])


def read(page: str) -> dict[str, str]:
    """Return the blocks of a page, by the names of their benchmarks."""
    blocks = {match[1]: match[0] for match in _BLOCK.finditer(page)}
    return {
        name: blocks[section.module]
        for name, section in SECTIONS.items()
        if section.module in blocks
    }


def read_closed(page: str) -> str:
    """Return the sections of a page about closed questions."""
    return "".join(page.partition(_CLOSED)[1:])


def render(blocks: Mapping[str, str], closed: str = "") -> str:
    """Return the page with these blocks; a benchmark without a block has its command only."""
    parts = [_HEAD]
    for name, section in SECTIONS.items():
        text = blocks.get(name, f"`{section.command}` has not run for this version.\n")
        parts.append(f"## {section.title}\n\n{section.text}\n{text}")
    return "\n".join([*parts, *([closed] if closed else [])])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECTIONS))
    names = parser.parse_args().names or list(SECTIONS)
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    all_met = True
    for name in names:
        print(SECTIONS[name].command, flush=True)
        text, met = run(SECTIONS[name])
        # After each, so that an interrupted run keeps what it has measured.
        page = PAGE.read_text() if PAGE.exists() else ""
        PAGE.write_text(render({**read(page), name: text}, read_closed(page)))
        all_met &= met
    sys.exit(0 if all_met else 1)


if __name__ == "__main__":
    main()
