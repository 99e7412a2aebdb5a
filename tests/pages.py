"""The examples of a page: run them, and compare or write what they print.

Blocks `python` and `sh` run in the order of the page and in one folder, which has `val.npz` and
`test.npz`, logits of a network from `examples`. All `python` blocks are one session, and so are all
`sh` blocks, which run on pages of tutorials and how-tos. A block `text` right below is the output.
Blocks `py` and `console` are not run.

    python -m tests.pages docs/tutorials/*.md    # run the examples again, and write their output
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from recalib.client import Client

if TYPE_CHECKING:
    from tests.end_to_end.programs import Programs

__all__ = ["assert_same_output", "calls_server", "run_page", "served"]

_ROOT = Path(__file__).resolve().parents[1]
#: The server of all pages. A test takes another port.
_SERVER = "http://127.0.0.1:8000"
#: Folders of pages whose `sh` blocks run too.
_FOLDERS = ("tutorials", "how-to")
_BLOCK = re.compile(
    r"^(?P<source>```(?P<language>python|sh)\n(?P<code>.*?)^```\n)"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: Of numbers that are printed: another processor rounds sums in another order.
_TOLERANCE = 0.05
#: A test runs the programs of the compose file as processes.
_DOCKER = """#!/bin/sh
test "$2" = exec || exit 0
shift 2
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec "$@"
"""


class Session:
    """Runs the examples of one page.

    Parameters
    ----------
    folder: where they run; it is empty.
    variables: of the environment. `RECALIB_SERVER` answers in place of `_SERVER`.
    has_shell: whether `sh` blocks run.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], has_shell: bool) -> None:
        self._has_shell = has_shell
        self._folder, self._url = folder, variables.get("RECALIB_SERVER", _SERVER)
        self._names: dict[str, object] = {"__name__": "__main__"}
        programs = folder / ".programs"
        programs.mkdir()
        for name, text in (("docker", _DOCKER), ("recalib", _recalib_program())):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (folder / "examples").symlink_to(_ROOT / "examples")
        for short, name in (("val", "validation"), ("test", "test")):
            (folder / f"{short}.npz").symlink_to(_rows(name))
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._variables = {"RECALIB_HOME": str(folder / "home"), "PATH": path, **variables}

    def run(self, text: str) -> str:
        """Run the examples of a page; return the page with what they print now."""
        with contextlib.chdir(self._folder), patch.dict(os.environ, self._variables):
            return _BLOCK.sub(self._run_block, text)

    def close(self) -> None:
        """Free what the examples have made.

        A DuckDB connection holds a function, whose globals hold the connection: a cycle in C++ that
        the garbage collector cannot free, and that DuckDB reports at the end of the process.
        """
        self._names.clear()

    def _run_block(self, block: re.Match[str]) -> str:
        if block["language"] == "sh" and not self._has_shell:
            return block[0]
        run = self._run_python if block["language"] == "python" else self._run_shell
        output = run(block["code"].replace(_SERVER, self._url)).replace(self._url, _SERVER)
        if block["output"] is None:
            return block[0]
        lines = "\n".join(line.rstrip() for line in output.strip("\n").split("\n"))
        return f"{block['source']}\n```text\n{lines}\n```\n"

    def _run_python(self, code: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, self._names)  # noqa: S102
        return output.getvalue()

    def _run_shell(self, code: str) -> str:
        # The variables of a block are those of the next.
        variables = "test ! -f .variables || . ./.variables\n"
        script = f"set -ea\n{variables}{code}\nexport -p > .variables\n"
        done = subprocess.run(
            ["bash", "-c", script],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout


def _rows(name: str) -> Path:
    return _ROOT / "examples" / f"cifar10-resnet8-cross-entropy-{name}.npz"


def _recalib_program() -> str:
    return f'#!/bin/sh\nexec "{sys.executable}" -m recalib "$@"\n'


def calls_server(text: str) -> bool:
    """Return whether an example of a page calls a server."""
    return any(_SERVER in block["code"] for block in _BLOCK.finditer(text))


@contextlib.contextmanager
def served(programs: Programs) -> Iterator[dict[str, str]]:
    """A server that requires keys, with the champion of a model `resnet` fitted to `val.npz`.

    Yields the variables of its administrator.
    """
    process = programs.start("keys", "create", "pages", "--scope", "admin")
    key = process.communicate(timeout=120)[0].decode().strip()
    with programs.serve("--require-keys") as server, Client(server.url, api_key=key) as client:
        client.create_model("resnet", 10, monitoring={"capture": 1.0})
        client.upload_dataset("resnet", "val", _rows("validation"), progress=False)
        client.wait(client.fit("resnet", "val", promote=True), progress=False)
        yield {
            "RECALIB_HOME": str(programs.home),
            "RECALIB_KEY": key,
            "RECALIB_SERVER": server.url,
        }


def assert_same_output(page: str, expected: str) -> None:
    """Compare a page with the one that was written: the same text, and nearly the same numbers."""
    assert _NUMBER.sub("#", page).split() == _NUMBER.sub("#", expected).split()
    numbers = [[float(number) for number in _NUMBER.findall(text)] for text in (page, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=_TOLERANCE, abs=0.02)


def run_page(page: Path, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run the examples of a page in an empty folder; return the page with what they print now."""
    session = Session(folder, variables or {}, page.parent.name in _FOLDERS)
    try:
        return session.run(page.read_text())
    finally:
        session.close()


def main(pages: list[str]) -> None:
    """Run the examples of these pages, and write their output, and their pictures, into them."""
    from tests.end_to_end.programs import Programs

    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        programs = Programs(Path(home))
        stack.callback(programs.clean_up)
        variables: dict[str, str] = {}
        for page in map(Path, pages):
            is_client = calls_server(page.read_text())
            if is_client and not variables:
                variables = stack.enter_context(served(programs))
            with tempfile.TemporaryDirectory() as folder:
                text = run_page(page.resolve(), Path(folder), variables if is_client else None)
                page.write_text(text)
                for picture in Path(folder).glob("*.svg"):
                    shutil.copy(picture, _ROOT / "docs" / "images")


if __name__ == "__main__":
    main(sys.argv[1:])
