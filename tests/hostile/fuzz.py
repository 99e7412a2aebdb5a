"""Fuzz the parsers with coverage feedback: `make fuzz-parsers`.

`python -m tests.hostile.fuzz` fuzzes each parser in a separate process; with a name it
fuzzes that parser only. Inputs with new coverage are kept in `.fuzz/NAME`, where the
next run continues; a faulty input is `.fuzz/crash-...` and printed with its traceback. atheris
is not a dependency of this project: it has 35 MB and lacks wheels for some Python versions.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

__all__ = ["main"]

_FOLDER = Path(".fuzz")
#: Memory limit of the process, libraries included; more than any small file needs.
_MAX_MIB = 1500
_LONGEST_SECONDS = 20
_LARGEST = 1 << 16


def main(arguments: list[str] | None = None) -> int:
    """Fuzz one parser or all of them; return 1 if a fault was found."""
    reader = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    reader.add_argument("parser", nargs="?", help="one parser; all of them by default")
    reader.add_argument("--seconds", type=int, default=60, help="for each parser")
    options = reader.parse_args(arguments)
    _FOLDER.mkdir(exist_ok=True)
    if options.parser is not None:
        _fuzz(options.parser, options.seconds)
        return 0
    from tests.hostile.parsers import PARSERS

    failed = []
    for name in PARSERS:
        command = [
            sys.executable,
            "-m",
            "tests.hostile.fuzz",
            name,
            "--seconds",
            str(options.seconds),
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        last = [line for line in process.stderr.splitlines() if "cov:" in line][-1:]
        outcome = "fault" if process.returncode else "nothing"
        print(f"{name}: {outcome}; {' '.join(last)}", flush=True)  # noqa: T201
        if process.returncode:
            failed.append(name)
            print(process.stdout[-4000:], process.stderr[-4000:], sep="\n", flush=True)  # noqa: T201
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz one parser until the time limit, or until a fault ends this process."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is missing; `make fuzz-parsers` installs it")
    with atheris.instrument_imports(include=["recalib", "service"]):
        from tests.hostile.parsers import PARSERS, refusal
    if name not in PARSERS:
        sys.exit(f"no parser {name!r}; one of {', '.join(PARSERS)}")
    parser = PARSERS[name]
    corpus = _FOLDER / name
    corpus.mkdir(exist_ok=True)
    for seed in parser.seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = {
        "max_total_time": seconds,
        "max_len": _LARGEST,
        "rss_limit_mb": _MAX_MIB,
        "timeout": _LONGEST_SECONDS,
        "artifact_prefix": f"{_FOLDER}/",
    }
    flags = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], lambda data: _once(refusal, parser, data))
    atheris.Fuzz()


def _once(refusal, parser, data: bytes) -> None:  # type: ignore[no-untyped-def]
    refusal(parser.read, data)


if __name__ == "__main__":
    sys.exit(main())
