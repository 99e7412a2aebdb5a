"""`recalib calibrate`: `recalib apply` through a server."""

from __future__ import annotations

import io

import numpy as np
import pytest

import recalib
from recalib.client import Client
from tests.cli.conftest import cli
from tests.cli.running import LABELS, LOGITS, Cli
from tests.client.flaky import Act, Flaky, closes, problem, says
from tests.end_to_end.programs import Server
from tests.files.examples import write_npz
from tests.service.conftest import npy

__all__ = ["cli"]


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    """A model with two versions; the first is the champion."""
    with Client(server.url) as client:
        client.create_model("asked", 4)
        client.upload_dataset("asked", "val", LOGITS, LABELS, progress=False)
        for map, promote in (("temperature", True), ("identity", False)):
            client.wait(client.fit("asked", "val", map=map, promote=promote), progress=False)
        answers = {"sets": "lac", "max_risk": 0.5}
        client.wait(client.fit("asked", "val", **answers, promote=False), progress=False)
    return "asked"


@pytest.fixture
def served(cli: Cli, server: Server, model: str) -> str:
    """The model; its champion is also in `t.calib`."""
    with Client(server.url) as client:
        client.download_calibrator(model, cli.folder / "t.calib")
    return model


@pytest.mark.slow
def test_output_equals_apply(cli: Cli, server: Server, served: str) -> None:
    """Both commands write equal files, by version or alias, with text or JSON output."""
    there = ("--server", server.url, "--model", served)
    result = cli("calibrate", "val.npz", *there, "-o", "out.npz", "--json")
    assert result.json == {"output": "out.npz", "rows": 300, "classes": 4}
    actual = cli.probabilities("out.npz")
    cli("apply", "t.calib", "val.npz", "-o", "local.npz")
    np.testing.assert_allclose(actual, cli.probabilities("local.npz"), atol=1e-6)

    result = cli("calibrate", "val.npz", *there, "-o", "1.npz", "--calibrator", "1")
    assert (result.status, result.err) == (0, "")
    assert result.out == "saved 300 rows of 4 probabilities to 1.npz\n"
    np.testing.assert_array_equal(cli.probabilities("1.npz"), actual)
    cli("calibrate", "val.npz", *there, "-o", "2.npz", "--calibrator", "2")
    assert np.abs(cli.probabilities("2.npz") - actual).max() > 0.01
    third = (*there, "-o", "3.npz", "--calibrator", "3")
    result = cli("calibrate", "val.npz", *third, "--sets")
    assert result.out == "saved 300 rows of 4 probabilities and sets to 3.npz\n"
    fitted, rows = recalib.fit(LOGITS, LABELS, sets="lac", max_risk=0.5), LOGITS.astype(np.float32)
    expected = fitted.predict_set(rows)
    np.testing.assert_array_equal(np.load(cli.folder / "3.npz")["sets"], expected)
    result = cli("calibrate", "val.npz", *third, "--sets", "--accepted")
    assert result.out == "saved 300 rows of 4 probabilities and sets and accepted to 3.npz\n"
    accepted = np.load(cli.folder / "3.npz")["accepted"]
    np.testing.assert_array_equal(accepted, fitted.is_accepted(rows))
    result = cli("calibrate", "val.npz", *there, "-o", "4.npz", "--sets")
    assert "version 1 of model 'asked', without thresholds of prediction sets" in result.err
    result = cli("calibrate", "val.npz", *there, "-o", "4.npz", "--accepted")
    assert "version 1 of model 'asked', without a threshold of rejection" in result.err

    probabilities = cli.probabilities("2.npz")  # by identity: softmax(logits)
    cli.write("p.npz", write_npz(probabilities, None, "probabilities"))
    result = cli("calibrate", "p.npz", *there, "-o", "3.npz", "--input", "probabilities")
    assert (result.status, result.err) == (0, "")
    np.testing.assert_allclose(cli.probabilities("3.npz"), actual, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--model", "nobody"), "model 'nobody' does not exist"),
        (("--calibrator", "77"), "version '77' does not exist"),
        (("--calibrator", "best"), "alias 'best' does not exist"),
        (("--server", "localhost:8000"), "url: found 'localhost:8000'; accepted: the address of"),
        (("--server", "http://127.0.0.1:1"), "no response from http://127.0.0.1:1: [Errno 111]"),
        (("-o", "out.npy"), "output: found out.npy; accepted: a name that ends in .npz"),
        (("-o", "val.npz"), "output: found val.npz, which is read"),
    ],
)
def test_impossible_requests_are_one_line(
    cli: Cli, server: Server, served: str, more: tuple[str, ...], message: str
) -> None:
    """Exit code 2, one line, and no output file."""
    before = cli.files()
    usual = ("--server", server.url, "--model", served, "-o", "out.npz")
    result = cli("calibrate", "val.npz", *usual, *more)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"error: {message}")
    assert cli.files() == before


def test_wrong_number_of_classes_is_rejected(cli: Cli, server: Server, served: str) -> None:
    cli.write("three.npz", write_npz(LOGITS[:, :3], None))
    there = ("--server", server.url, "--model", served, "-o", "out.npz")
    result = cli("calibrate", "three.npz", *there)
    assert (result.status, result.err) == (
        2,
        "error: logits: found 3 classes; accepted: 4 classes\n",
    )


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            says(200, b"<html>"),
            "error: POST /v1/models/m/calibrate: the server's response is no npz",
        ),
        (says(401, b"Who\nare\nyou?"), "error: POST /v1/models/m/calibrate was answered 401: Who"),
        (
            problem(500, "An unexpected error; the server's log has it."),
            "error: An unexpected error;",
        ),
        (closes(b""), "error: no response from http://127.0.0.1:"),
        (
            says(200, npy(np.zeros((1, 4)))),
            "error: POST /v1/models/m/calibrate: the server's response",
        ),
    ],
)
def test_invalid_server_is_one_line(cli: Cli, flaky: Flaky, act: Act, message: str) -> None:
    """The error is one line, and no file is written."""
    model = {"name": "m", "classes": 4, "labels": None, "created_at": "2026-01-01T00:00:00Z"}
    flaky.will(says(200, model), act)
    there = ("--server", flaky.url, "--model", "m", "-o", "out.npz")
    result = cli("calibrate", "val.npz", *there)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(message)
    assert not (cli.folder / "out.npz").exists()


def test_columns_with_the_names_of_the_classes_may_have_any_order(cli: Cli, flaky: Flaky) -> None:
    """--scores has the order of the classes, or is refused."""
    names = ["cat", "dog", "emu"]
    model = {"name": "m", "classes": 3, "labels": names, "created_at": "2026-01-01T00:00:00Z"}
    there = ("--server", flaky.url, "--model", "m", "-o", "out.npz")
    cli.write("rows.csv", b"emu,label,cat,dog\n3,emu,1,2\n")
    for more in ((), ("--scores", "cat,dog,emu")):
        flaky.will(says(200, model), problem(404, "none"))
        assert "none" in cli("calibrate", "rows.csv", *there, *more).err
        body = np.load(io.BytesIO(flaky.received[-1].body))
        np.testing.assert_array_equal(body, [[1, 2, 3]])
    flaky.will(says(200, model))
    result = cli("calibrate", "rows.csv", *there, "--scores", "emu,cat,dog")
    assert "scores: found columns in the order emu, cat, dog; accepted: the order cat" in result.err
