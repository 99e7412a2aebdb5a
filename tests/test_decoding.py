"""msgspec types are decoded for the first time by several threads at once."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from recalib.core.card import Card
from recalib.core.decoding import convert, decoder_of
from recalib.recipe import Recipe

#: The first decoding of a type takes many steps; another thread may run between any of them.
_MANY_THREADS = """
import sys, threading
from types import ModuleType

from recalib.core.decoding import convert, decoder_of

source = "from __future__ import annotations\\nimport msgspec\\n"
source += "from dataclasses import dataclass\\n"
for depth in range(8):
    kind = f"list[A{depth - 1}] | None" if depth else "float | None"
    fields = "".join(f"    f{n}: {kind if n == 3 else 'float | None'} = None\\n" for n in range(12))
    source += f"class A{depth}(msgspec.Struct):\\n{fields}"
source += f"@dataclass\\nclass Plain:\\n{fields}"
plain = {"f3": [{"f3": [{"f1": 1}], "f11": 2}], "f11": 1.5}
text = b'{"f3": [{"f3": [{"f1": 1}], "f11": 2}], "f11": 1.5}'
sys.setswitchinterval(1e-6)
for number in range(60):
    module = sys.modules[f"m{number}"] = ModuleType(f"m{number}")
    exec(source, module.__dict__)
    together = threading.Barrier(6)

    def read():
        together.wait()
        READ

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("read")
"""


@pytest.mark.parametrize(
    "read",
    [
        pytest.param("decoder_of(module.A7).decode(text)", marks=pytest.mark.slow),
        pytest.param("convert(plain, module.A7)", marks=pytest.mark.slow),
        pytest.param("convert(plain, module.Plain)", marks=pytest.mark.slow),
        "decoder_of(module.A7).decode(text), convert(plain, module.Plain)",
    ],
)
def test_threads_can_decode_a_new_type_concurrently(read: str) -> None:
    """Runs in a child process, since unprotected msgspec crashes."""
    process = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _MANY_THREADS.replace("READ", read)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "read\n"), process.stderr


def test_fields_are_decoded() -> None:
    assert decoder_of(list[int]).decode(b"[1, 2]") == [1, 2]
    assert decoder_of(Card) is decoder_of(Card)
    assert convert({"a": 1}, dict[str, int]) == {"a": 1}
    with pytest.raises(msgspec.ValidationError, match="Recipe"):
        convert([], Recipe)
    with pytest.raises(msgspec.DecodeError):
        decoder_of(Card).decode(b"{")
