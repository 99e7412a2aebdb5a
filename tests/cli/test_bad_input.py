"""Bad input at the command line: exit code 2 and one line; no traceback, and no file left."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.cli.running import LABELS, LOGITS, Cli, CommandResult
from tests.files.bad_files import BAD, npz, npz_bomb
from tests.files.examples import write_json, write_npy, write_npz


def check(result: CommandResult, field: str, found: str) -> None:
    """One line that names the field, what was found and what is accepted."""
    assert result.status == 2, result
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith(f"error: {field}: found "), result.err
    message, _, accepted = result.err.partition("; accepted: ")
    assert found in message, result.err
    assert accepted.strip(), result.err


def with_value(row: int, column: int, value: float) -> np.ndarray:
    changed = LOGITS.copy()
    changed[row, column] = value
    return changed


def with_label(row: int, value: float) -> np.ndarray:
    changed = LABELS.astype(type(value))
    changed[row] = value
    return changed


GOOD = write_npz(LOGITS, LABELS)

#: What it is: the file's name, its content, the field, a part of what was found.
WRONG: dict[str, tuple[str, bytes, str, str]] = {
    "NaN": ("x.npz", write_npz(with_value(2, 1, np.nan), LABELS), "logits[2][1]", "NaN"),
    "+inf": ("x.npz", write_npz(with_value(2, 1, np.inf), LABELS), "logits[2][1]", "+inf"),
    "a label on a masked class": (
        "x.npz",
        write_npz(with_value(3, LABELS[3], -np.inf), LABELS),
        "labels[3]",
        "masked (-inf)",
    ),
    "all masked": (
        "x.npz",
        write_npz(np.where(np.arange(300)[:, None] == 5, -np.inf, LOGITS), LABELS),
        "logits[5]",
        "every class masked",
    ),
    "label 4 of 4": ("x.npz", write_npz(LOGITS, with_label(1, 4)), "labels[1]", "4"),
    "label -1": ("x.npz", write_npz(LOGITS, with_label(1, -1)), "labels[1]", "-1"),
    "half a label": ("x.npz", write_npz(LOGITS, with_label(1, 0.5)), "labels[1]", "0.5"),
    "no label": ("x.npz", write_npz(LOGITS, with_label(1, np.nan)), "labels[1]", "nan"),
    "no labels": ("x.npz", write_npz(LOGITS, None), "labels", "without labels"),
    "npy, which has no labels": ("x.npy", write_npy(LOGITS), "labels", "without labels"),
    "rank 3": ("x.npz", write_npz(LOGITS[None], LABELS), "logits", "shape (1, 300, 4)"),
    "labels of rank 2": ("x.npz", write_npz(LOGITS, np.c_[LABELS, LABELS]), "labels", "(300, 2)"),
    "no class": ("x.npz", write_npz(LOGITS[:, :0], LABELS * 0), "logits", "0 class"),
    "no rows": ("x.npz", write_npz(LOGITS[:0], LABELS[:0]), "logits", "no rows"),
    "one label too few": ("x.npz", write_npz(LOGITS, LABELS[1:]), "labels", "299"),
    "an empty file": ("x.npz", b"", "data", ""),
    "a truncated file": ("x.npz", GOOD[:-40], "data", "not a zip file"),
    "objects": ("x.npz", npz(logits=pickle.dumps(LOGITS)), "logits", "bytes b'\\x80"),
    "an object array": ("x.npz", write_npz(LOGITS.astype(object), LABELS), "logits", "pickle"),
    "a lying header": ("x.npz", npz_bomb(), "logits", "claim"),
    "ragged JSON": ("x.json", write_json([[1, 2], [3]], LABELS[:2]), "logits[1]", "1 values"),
    "truncated JSON": ("x.json", b'{"logits": [[1, 2', "data", "truncated"),
    "CSV as npz": ("x.npz", b"logit_0,logit_1,labels\n1,2,0\n", "data", "not a zip file"),
    "another format": ("x.txt", b"1 2 0", "format", "'.txt'"),
}

#: Each place where a command reads labelled data; `compare` says in which file the fault is.
PLACES = {
    "fit": ("fit {} -o y.calib", ""),
    "evaluate": ("evaluate {} --diagram y.json", ""),
    "evaluate, calibrated": ("evaluate {} --calibrator t.calib --json", ""),
    "compare, validation": ("compare {} val.npz --maps identity --objectives nll", "validation: "),
    "compare, test": ("compare val.npz {} --maps identity --objectives nll", "test: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_data_is_rejected(cli: Cli, case: str) -> None:
    """Wherever labelled data is read; --json, of every other command, changes nothing about it."""
    name, content, field, found = WRONG[case]
    cli.fitted()
    cli.write(name, content)
    before = cli.files()
    for number, (command, prefix) in enumerate(PLACES.values(), list(WRONG).index(case)):
        more = ["--json"] if number % 2 else []
        check(cli(*command.format(name).split(), *more), prefix + field, found)
    assert cli.files() == before


@pytest.mark.parametrize("case", [name for name, case in WRONG.items() if "labels" not in case[2]])
def test_apply_rejects_invalid_logits(cli: Cli, case: str) -> None:
    """`apply` reads no labels, but refuses the same logits."""
    name, content, field, found = WRONG[case]
    calib = cli.fitted()
    cli.write(name, content)
    before = cli.files()
    check(cli("apply", calib, name, "-o", "out.npz"), field, found)
    assert cli.files() == before


#: The first case of each format and field; tests/files reads all of them.
FILES = {(case[0], case[2]): name for name, case in reversed(BAD.items())}


@pytest.mark.parametrize(
    ("format", "content", "field", "found"),
    [BAD[name] for name in FILES.values()],
    ids=FILES.values(),
)
def test_invalid_files_are_rejected(
    cli: Cli, format: str, content: bytes, field: str, found: str
) -> None:
    """Damaged, inconsistent and hostile files of the reader tests."""
    cli.write(f"x.{format}", content)
    calib = cli.fitted()
    before = cli.files()
    command = ["fit"] if field.startswith("labels") else ["apply", calib]
    result = cli(*command, f"x.{format}", "-o", "out.npz")
    check(result, field, "")
    assert found in result.err
    assert cli.files() == before


#: Commands that are wrong for any data: the field, a part of what was found.
COMMANDS = [
    ("fit val.npz -o y.calib --map magic", "map", "'magic'"),
    ("fit val.npz -o y.calib --objective luck", "objective", "'luck'"),
    ("fit val.npz -o y.calib --option bins=3", "options.bins", "an unknown option"),
    ("fit val.npz -o y.calib --option bins", "option", "'bins'"),
    ("fit val.npz -o y.calib --option =3", "option", "'=3'"),
    ("fit val.npz -o y.calib --objective focal --option gamma=-1", "options.gamma", "-1"),
    ("fit val.npz -o y.calib --objective focal --option gamma=NaN", "options.gamma", "nan"),
    ("fit val.npz -o y.calib --objective focal --option gamma=x", "options", "`str`"),
    ("fit val.npz -o y.calib --input probabilities", "probabilities", "but logits"),
    ("fit missing.npz -o y.calib", "data", "missing.npz: No such file"),
    ("fit missing -o y.calib", "data", "missing: No such file"),
    ("fit folder.npz -o y.calib", "data", "nothing at folder.npz"),
    ("fit folder -o y.calib", "data", "nothing at folder"),
    ("fit val.npz no.npz -o y.calib", "data", "no.npz: No such file or directory"),
    ("fit val.npz val.npz -o y.calib --weights w.npy", "weights", "w.npy: No such file"),
    ("evaluate val.npz --cluster local", "cluster", "'local'"),
    ("fit val.npz/x.npz -o y.calib", "data", "Not a directory"),
    ("fit val.npz -o no/y.calib", "output", "no/y.calib (no folder no)"),
    ("fit val.npz -o folder", "output", "folder (a folder)"),
    ("fit val.npz -o .", "output", ". (a folder)"),
    ("fit val.npz -o val.npz/y.calib", "output", "no folder val.npz"),
    ("fit val.npz -o val.npz", "output", "val.npz, which is read"),
    ("fit val.npz -o ./folder/../val.npz", "output", "val.npz, which is read"),
    ("fit val.npz -o " + "y" * 300, "output", "File name too long"),
    ("fit val.npz -o " + "y" * 250, "output", "File name too long"),  # its temporary one is
    ("apply missing.calib val.npz -o y.npz", "calibrator", "missing.calib (No such file"),
    ("apply folder val.npz -o y.npz", "calibrator", "folder (Is a directory)"),
    ("apply t.calib three.npz -o y.npz", "logits", "3 classes"),
    ("apply t.calib missing.npz -o y.npz", "data", "missing.npz"),
    ("apply t.calib val.npz -o y.txt", "output", "y.txt"),
    ("apply t.calib val.npz -o y", "output", "y"),
    ("apply t.calib val.npz -o no/y.npz", "output", "no folder no"),
    ("apply t.calib val.npz -o val.npz", "output", "which is read"),
    ("export missing.calib -o y.onnx", "calibrator", "No such file"),
    ("export t.calib -o y.pb", "output", "y.pb"),
    ("export t.calib", "output", "neither"),
    ("export t.calib -o y.onnx --name y", "output", "options of --triton"),
    ("export t.calib --triton y --from logits", "model", "none"),
    ("export t.calib --triton y --name ../y", "name", "'../y'"),
    ("export t.calib -o no/y.onnx", "output", "no folder no"),
    ("evaluate three.npz --calibrator t.calib", "logits", "3 classes"),
    ("evaluate val.npz --picture risk", "picture", "risk"),
    ("evaluate val.npz --diagram y.png --bins 101", "bins", "101"),
    # Before anything is read or measured.
    ("evaluate missing.npz --diagram y.png --bins 101", "bins", "101"),
    ("evaluate val.npz --diagram y.gif", "diagram", ".gif"),
    ("evaluate val.npz --diagram no/y.png", "diagram", "no folder no"),
    ("evaluate val.npz --calibrator missing.calib", "calibrator", "No such file"),
    ("compare val.npz three.npz", "test: logits", "3 classes"),
    ("compare val.npz missing.npz", "test: data", "missing.npz"),
    ("compare missing.npz val.npz", "validation: data", "missing.npz"),
    ("compare val.npz val.npz --maps magic", "maps", "'magic'"),
    ("compare val.npz val.npz --objectives nll,luck", "objectives", "'luck'"),
    ("serve --port 99999", "--port", "99999"),
    ("serve --workers 0", "--workers", "0"),
    # A home that cannot be, so that no server starts where the host were not refused.
    ("serve --host 0.0.0.0 --home val.npz", "host", "'0.0.0.0'"),
    ("serve --host :: --home val.npz", "host", "'::'"),
    ("serve --home val.npz", "home", "val.npz (File exists)"),
    ("serve --home val.npz/home", "home", "Not a directory"),
]


@pytest.mark.parametrize(("command", "field", "found"), COMMANDS, ids=[c[0][:60] for c in COMMANDS])
def test_invalid_commands_are_rejected(cli: Cli, command: str, field: str, found: str) -> None:
    cli.fitted()
    (cli.folder / "folder").mkdir()
    (cli.folder / "folder.npz").mkdir()
    cli.write("three.npz", write_npz(LOGITS[:, :3], LABELS % 3))
    before = cli.files()
    check(cli(*command.split()), field, found)
    assert cli.files() == before


#: What does not even reach a command: a part of the line.
USAGE = [
    ("frobnicate", "No such command 'frobnicate'"),
    ("--frobnicate", "No such option: --frobnicate"),
    ("fit", "Missing argument 'data'"),
    ("fit val.npz", "Missing option '--output'"),
    ("fit val.npz -o", "'-o' requires an argument"),
    ("report val.npz val.npz more.npz -o r.html", "unexpected extra argument(s) (more.npz)"),
    ("fit val.npz -o y.calib --frobnicate", "No such option: --frobnicate"),
    ("fit val.npz -o y.calib --input guess", "'guess' is not one of 'logits', 'probabilities'"),
    ("evaluate val.npz --bins 0", "0 is not in the range 1<=x<=10000"),
    ("evaluate val.npz --bins many", "'many' is not a valid int"),
    ("serve --port http", "'--port': 'http' is not a valid int"),
]


@pytest.mark.parametrize(("command", "message"), USAGE, ids=[case[0] for case in USAGE])
def test_usage_errors_are_one_line(cli: Cli, command: str, message: str) -> None:
    before = cli.files()
    result = cli(*command.split())
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("error: ")
    assert message in result.err
    assert cli.files() == before


def _damaged(good: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "a pickle": pickle.dumps([1]),
        "text": b"temperature = 2",
        "cut in its header": good[:100],
        "cut in its parameters": good[:-3],
        "a byte more": good + b"x",
        "without a card": good.replace(b'"card"', b'"cord"', 1),
        "of an unknown map": good.replace(rb"\"temperature\"", rb"\"temperoture\"", 1),
    }


@pytest.mark.parametrize("case", _damaged(b""))
def test_damaged_parameter_files_are_rejected(cli: Cli, case: str) -> None:
    """Every command that takes one says which file it is."""
    good = (cli.folder / cli.fitted()).read_bytes()
    content = _damaged(good)[case]
    assert content != good
    cli.write("bad.calib", content)
    before = cli.files()
    for command in (
        "apply bad.calib val.npz -o y.npz",
        "export bad.calib -o y.onnx",
        "evaluate val.npz --calibrator bad.calib --diagram y.json",
    ):
        result = cli(*command.split())
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1), result
        assert result.err.startswith("error: calibrator bad.calib: ")
    assert cli.files() == before


@pytest.mark.parametrize("at", [0, 1, 4])
def test_debug_shows_the_traceback(cli: Cli, at: int) -> None:
    """`--debug` works at any position; the error message is the last line."""
    command = ["fit", "missing.npz", "-o", "y.calib"]
    result = cli(*command[:at], "--debug", *command[at:])
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert result.err.splitlines()[-1].startswith("error: data: found missing.npz")


@pytest.mark.parametrize(
    ("package", "command", "message"),
    [
        ("pyarrow", "demo", "demo: found no package pyarrow; accepted: pip install 'recalib[demo,"),
        ("onnx", "export t.calib -o t.txt", "output: found t.txt; accepted: a name that ends in"),
        ("onnx", "export t.calib", "output: found neither; accepted: one of --output and --triton"),
    ],
)
def test_packages_are_needed_after_valid_options(package: str, command: str, message: str) -> None:
    """Options are checked first, and a missing package is named with all that the command needs."""
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom recalib.cli import main\nmain()"
    result = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
