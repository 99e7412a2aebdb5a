"""`recalib publish` and `recalib pull`: a calibrator goes to a server and comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

import recalib
from recalib.client import Client, ResourceConflictError
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.end_to_end.programs import Server
from tests.files.examples import write_npz
from tests.fitting.conftest import draw

__all__ = ["cli"]

_LOGITS, _LABELS = draw(900, 4, 2.0, seed=9)


@pytest.fixture
def model(cli: Cli, server: Server, name: str) -> str:
    """A model without a champion, and a data set of rows that the local fit has not seen."""
    cli.write("local.npz", write_npz(_LOGITS[:600], _LABELS[:600]))
    with Client(server.url) as client:
        client.create_model(name, 4)
        client.upload_dataset(name, "later", _LOGITS[600:], _LABELS[600:], progress=False)
    return name


def test_local_fit_is_published_and_pulled(cli: Cli, server: Server, model: str) -> None:
    cli("fit", "local.npz", "-o", "local.calib")
    there = ("--server", server.url, "--model", model)
    result = cli("publish", "local.calib", *there, "--dataset", "later")
    assert (result.status, result.err) == (0, "")
    assert "metrics that the card claims" in result.out
    expected = (
        f"version 1 of {model} is not the champion: temperature is not compared with identity"
    )
    assert expected in result.out
    assert "--fitted-on FILE" in result.out

    fitted_on = ("--dataset", "later", "--fitted-on", "local.npz")
    result = cli("publish", "local.calib", *there, *fitted_on)
    assert (result.status, result.err) == (0, "")
    assert "measured on 300 rows of later" in result.out
    assert f"version 2 of {model} is the champion: temperature beats identity" in result.out

    assert cli("pull", *there, "-o", "back.calib").out == (
        f"saved version 2 of {model} to back.calib\n"
    )
    cli("apply", "local.calib", "local.npz", "-o", "here.npz")
    cli("apply", "back.calib", "local.npz", "-o", "back.npz")
    np.testing.assert_array_equal(cli.probabilities("here.npz"), cli.probabilities("back.npz"))
    result = cli("pull", *there, "--version", "1", "-o", "1.onnx", "--json")
    assert result.json == {"output": "1.onnx", "model": model, "version": 1}


def test_table_with_named_columns_is_published_and_not_uploaded(
    cli: Cli, server: Server, model: str
) -> None:
    """The card has the names; an upload says which columns a server reads."""
    names = ("ant", "bee", "cat", "dog")
    columns = dict(zip(names, _LOGITS[:600].T, strict=True))
    write_csv(pa.table({**columns, "label": _LABELS[:600]}), str(cli.folder / "named.csv"))
    cli("fit", "named.csv", "--scores", ",".join(names), "-o", "named.calib")
    there = ("--server", server.url, "--model", model)
    fitted_on = ("--dataset", "later", "--fitted-on", "named.csv")
    result = cli("publish", "named.calib", *there, *fitted_on)
    assert "measured on 300 rows of later" in result.out

    np.savez(cli.folder / "other.npz", mine=_LOGITS[:600], truth=_LABELS[:600])
    cli("fit", "other.npz", "--scores", "mine", "--label", "truth", "-o", "other.calib")
    fitted_on = ("--dataset", "later", "--fitted-on", "other.npz", "--scores", "mine")
    result = cli("publish", "other.calib", *there, *fitted_on, "--label", "truth")
    assert (result.status, result.err) == (0, "")
    assert "measured on 300 rows of later" in result.out
    arguments = (f"model={model}", "name=named", "data=named.csv")
    result = cli("api", "upload_dataset", *arguments, "--server", server.url)
    assert result.status == 2
    assert "logits: found 'ant', 'bee', 'cat', 'dog', 'label'; accepted: a column" in result.err


def test_data_set_is_pulled(cli: Cli, server: Server, model: str) -> None:
    there = ("--server", server.url, "--model", model, "--dataset", "later")
    result = cli("pull", *there, "-o", "later.safetensors")
    assert result.out == f"saved data set later of {model} to later.safetensors\n"
    cli("fit", "later.safetensors", "-o", "later.calib")
    result = cli("pull", *there, "-o", "later.safetensors", "--json")
    assert result.json == {"output": "later.safetensors", "model": model, "dataset": "later"}
    for more, message in (
        (("-o", "later.npz"), "destination: found later.npz; accepted: a name that ends in .safe"),
        (("-o", "l.safetensors", "--version", "1"), "version: found 1 and a data set; accepted:"),
    ):
        result = cli("pull", *there, *more)
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        assert result.err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--fitted-on", "val.npz"), "fitted_on: found sha256"),
        (("--dataset", "absent"), "dataset 'absent' does not exist"),
        (("--model", "absent"), "model 'absent' does not exist"),
    ],
)
def test_impossible_publications_are_one_line(
    cli: Cli, server: Server, model: str, more: tuple[str, ...], message: str
) -> None:
    cli("fit", "local.npz", "-o", "local.calib")
    result = cli("publish", "local.calib", "--server", server.url, "--model", model, *more)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"error: {message}")


@pytest.mark.slow
def test_arrays_are_published_from_python(server: Server, name: str) -> None:
    """The digests are those of the array of the fit, of any float dtype."""
    import recalib

    logits = _LOGITS.astype(np.float32)
    calibrator = recalib.fit(logits[:600].astype(np.float64), _LABELS[:600])
    with Client(server.url) as client:
        client.create_model(name, 4)
        client.upload_dataset(name, "all", logits, _LABELS, progress=False)
        queued = client.publish(name, calibrator, "all", fitted_on=logits[:600])
        result = client.wait(queued, progress=False).result
    assert result is not None
    assert result["promoted"]
    assert result["comparison"]["rows"] == 300


def test_multilabel_fit_is_published_and_served(cli: Cli, server: Server, name: str) -> None:
    scores = np.random.default_rng(4).normal(0, 2, (300, 3))
    cli.write("tags.npz", write_npz(scores, scores + 1 > 0))
    cli("fit", "tags.npz", "--task", "multilabel", "--map", "platt", "-o", "tagger.calib")
    local = recalib.load(cli.folder / "tagger.calib")
    with Client(server.url) as client:
        assert client.create_model(name, 3, task="multilabel").task == "multilabel"
        client.create_model(name, 3, task="multilabel", exist_ok=True)
        with pytest.raises(ResourceConflictError):
            client.create_model(name, 3, exist_ok=True)
        there = ("--server", server.url, "--model", name)
        result = cli("publish", "tagger.calib", *there, "--promote", "always")
        assert f"version 1 of {name} is the champion: as requested" in result.out
        odds = client.calibrate(name, scores[:5], task="multilabel")
        shares = 1 / (1 + np.exp(-scores[:5]))
        probabilities = client.calibrate(name, shares, input="probabilities", task="multilabel")
        served = client.predict(name, scores[:5], task="multilabel")
        labels = scores[:5] > 0
        late = client.add_labels(name, served.prediction_ids, labels)
        assert late.counts == {"accepted": 5}
        lists = [np.flatnonzero(row).tolist() for row in labels]
        late = client.add_labels(name, served.prediction_ids, lists)
        assert late.counts == {"duplicate": 5}
    np.testing.assert_array_equal(served.probabilities, odds)
    np.testing.assert_allclose(odds, local.predict(scores[:5]), atol=1e-6)
    np.testing.assert_allclose(probabilities, odds, atol=1e-5)


@pytest.mark.slow
def test_multilabel_model_is_fitted_evaluated_and_applied(
    cli: Cli, server: Server, name: str
) -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, (400, 3))
    labels = rng.random((400, 3)) < 1 / (1 + np.exp(1 - scores / 2))
    cli.write("tags.npz", write_npz(scores, labels))
    there = ("--server", server.url, "--model", name)
    with Client(server.url) as client:
        client.create_model(name, 3, task="multilabel")
        arrays = client.upload_dataset(name, "arrays", scores, labels, progress=False)
        file = client.upload_dataset(name, "file", cli.folder / "tags.npz", progress=False)
        assert arrays.metrics == file.metrics
        job = client.wait(client.fit(name, "arrays", map="platt"), progress=False)
        assert job.result is not None
        assert job.result["promoted"], job.result
        odds = client.calibrate(name, scores[:5], task="multilabel")
        # A local fit to a part of the rows is compared with the champion on the others.
        cli.write("part.npz", write_npz(scores[:200], labels[:200]))
        cli("fit", "part.npz", "--task", "multilabel", "-o", "part.calib")
        options = ("--dataset", "file", "--fitted-on", "part.npz")
        published = cli("publish", "part.calib", *there, *options, "--json").json
        # Evaluations and batches take data sets, files and arrays.
        job = client.wait(client.evaluate(name, "file"), progress=False)
        evaluation = client.get_evaluation(name, job)
        assert evaluation.rows == 400
        _, served = evaluation.results
        assert [label.changes["nll"].verdict for label in served.labels] == ["better"] * 3
        batch = client.create_batch(name, cli.folder / "tags.npz", format="npz", progress=False)
        target = cli.folder / "batch.npz"
        client.download_batch(name, client.wait(batch, progress=False), target, progress=False)
        shares = 1 / (1 + np.exp(-scores))
        batch = client.create_batch(
            name, shares, input="probabilities", format="npz", progress=False
        )
        target = cli.folder / "shares.npz"
        client.download_batch(name, client.wait(batch, progress=False), target, progress=False)
    local = recalib.fit(scores, labels, "platt", task="multilabel")
    np.testing.assert_allclose(odds, local.predict(scores[:5]), atol=1e-6)
    for file_name in ("batch.npz", "shares.npz"):
        answer = np.load(cli.folder / file_name)["probabilities"]
        np.testing.assert_allclose(answer[:5], odds, atol=1e-5)
    assert not published["promoted"]
    assert "version 1 was fitted on all but 0 of the 400 rows of file" in published["reason"]
