"""Apply each mutation to a copy of the source and run the short tests: `make mutants`.

The named test file runs first, then its folder, then the rest of the short suite, until a test
fails. Exit status 1 if a mutation survives all. The working tree stays unchanged.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutations import MUTATIONS, Mutation

_ROOT = Path(__file__).parents[2]
#: Limits of one file of tests, and of a folder or the whole suite, on a busy machine.
_FILE_SECONDS, _SUITE_SECONDS = 600, 2400
_TESTS_FAILED = 1
#: Modification times of mutated files: never twice the same, or a stale .pyc would be used.
_times = count(2_000_000_000, 10)


class _Outcome(NamedTuple):
    """The result of the tests of a mutation."""

    mutation: Mutation
    #: The first test that failed; empty if none did.
    caught_by: str
    seconds: float
    #: Output of pytest if it could not run, which is an error in the mutation.
    error: str = ""


def main() -> int:
    """Run the mutations that the arguments select; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="mutations at the same time")
    parser.add_argument("--only", default="", help="part of the paths of the files to mutate")
    parser.add_argument("--tests", nargs="*", default=[""], help="parts of the paths of test files")
    parser.add_argument("--quick", action="store_true", help="neither baseline nor rest of suite")
    options = parser.parse_args()
    mutations = [
        mutation
        for mutation in MUTATIONS
        if options.only in mutation.file and any(part in mutation.test for part in options.tests)
    ]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recalib-mutants-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(options.jobs):
            copies.put(_copy_source(Path(folder) / str(number)))
        if not options.quick:
            copy = copies.get()
            output = _run_tests(copy, "-n", str(options.jobs), "tests")[1]
            copies.put(copy)
            if output:
                print(output, "The short suite fails without any mutation.", sep="\n")
                return 2

        def judge(mutation: Mutation) -> _Outcome:
            copy = copies.get()
            try:
                return _judge(copy, mutation, rest=not options.quick)
            finally:
                copies.put(copy)

        outcomes = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for outcome in pool.map(judge, mutations):
                outcomes.append(outcome)
                _print_row(outcome)
    failed = [outcome for outcome in outcomes if outcome.error or not outcome.caught_by]
    minutes = (time.monotonic() - start) / 60
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} caught in {minutes:.0f} minutes.")
    return 1 if failed else 0


def _print_row(outcome: _Outcome) -> None:
    mutation = outcome.mutation
    verdict = outcome.error or outcome.caught_by or "SURVIVED"
    if outcome.caught_by and not outcome.caught_by.startswith(mutation.test):
        verdict += f" (expected in {mutation.test})"
    change = f"{mutation.old.strip()} -> {mutation.new.strip() or 'nothing'}"
    print(f"{outcome.mutation.file}: {change}\n    {outcome.seconds:4.0f} s  {verdict}", flush=True)


def _copy_source(folder: Path) -> Path:
    """Copy what git lists, changed and new files included."""
    git = shutil.which("git") or "git"
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    for name in set(listed.stdout.split("\0")) - {""}:
        if (_ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / name, folder / name)
    return folder


def _judge(copy: Path, mutation: Mutation, *, rest: bool) -> _Outcome:
    start = time.monotonic()
    path = copy / mutation.file
    original, times = path.read_text(), path.stat()
    path.write_text(original.replace(mutation.old, mutation.new))
    moment = next(_times)
    os.utime(path, (moment, moment))
    try:
        folder = str(Path(mutation.test).parent)
        caught_by, output = _run_tests(copy, mutation.test, timeout=_FILE_SECONDS)
        if not output and folder != "tests":
            caught_by, output = _run_tests(copy, folder, f"--ignore={mutation.test}")
        if rest and not output:
            # tests/mutants would notice any mutation.
            ignored = [f"--ignore={path}" for path in (mutation.test, folder, "tests/mutants")]
            caught_by, output = _run_tests(copy, "tests", *ignored)
    finally:
        path.write_text(original)
        os.utime(path, (times.st_atime, times.st_mtime))
    error = output if output and not caught_by else ""
    return _Outcome(mutation, caught_by, time.monotonic() - start, error)


def _run_tests(copy: Path, *arguments: str, timeout: float = _SUITE_SECONDS) -> tuple[str, str]:
    """Return the first test that failed and pytest's output, both empty if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    data = os.environ.get("RECALIB_DATA", str(_ROOT.parent / "shared" / "data"))
    # Programs that tests start import the copy as well.
    environment = {**os.environ, "PYTHONPATH": str(copy), "RECALIB_DATA": data}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        process = subprocess.run(
            [*command, *arguments],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {timeout} s", "timeout"
    if process.returncode == 0:
        return "", ""
    output = process.stdout[-4000:] + process.stderr[-4000:]
    failed = re.search(r"^FAILED (\S+)|^ERROR (\S+::\S+)", process.stdout, flags=re.MULTILINE)
    if process.returncode != _TESTS_FAILED or failed is None:
        return "", output
    return failed[1] or failed[2], output


if __name__ == "__main__":
    sys.exit(main())
