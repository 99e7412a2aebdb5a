"""schemathesis checks the service against its OpenAPI description.

It asks what the description allows and what it forbids, in and out of order, and looks at each
answer's status, headers and body. `make fuzz` does so for ten minutes, differently each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.programs import Programs
from tests.fitting.conftest import draw

#: Seconds to run; by default a few fixed cases of each operation.
_SECONDS = os.environ.get("RECALIB_TESTS_FUZZ_SECONDS")
_BOUNDED = ["--max-examples", "4", "--seed", "5"]
_CONFIGURATION = Path(__file__).with_name("schemathesis.toml")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + int(_SECONDS or 0))]


def test_responses_match_the_openapi_description(programs: Programs, tmp_path: Path) -> None:
    """Responses match the description, bad requests are refused, good ones accepted."""
    with programs.serve() as server:
        server.model(classes=3)
        server.upload(*draw(60, 3, 2.0))
        server.finished(server.ask_fit(promote=True))
        program = [sys.executable, "-m", "schemathesis.cli"]
        arguments = ["--config-file", _CONFIGURATION, "run", f"{server.url}/openapi.json"]
        process = subprocess.run(
            [*program, *arguments, "--no-color", "--generation-database", "none", *_bounds()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        # Each phase must have covered every operation.
        paths = server.ask("GET", "/openapi.json")["paths"]
        operations = sum(len(path) for path in paths.values())
        assert f"Tested: {operations}" in process.stdout
        for phase in ("Coverage", "Fuzzing", "Stateful"):
            assert f"✅ {phase}" in process.stdout
        assert "Traceback" not in server.log()
        assert server.stop() == 0


def _bounds() -> list[str]:
    return _BOUNDED if _SECONDS is None else ["--max-time", _SECONDS]
