"""`recalib models`, `describe`, `retention` and `delete`, and the same by the client."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from recalib.client import Client, ContradictionError, MissingError
from recalib.errors import InputError
from tests.cli.conftest import cli
from tests.cli.running import LABELS, LOGITS, Cli
from tests.client.either import Either
from tests.end_to_end.programs import Server

__all__ = ["cli"]

pytestmark = pytest.mark.slow

_PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_command_deletes_each_kind(cli: Cli, server: Server, name: str) -> None:
    with Client(server.url) as client:
        client.create_model(name, 4)
        client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
        client.wait(client.fit(name, "test", promote=True), progress=False)
        client.wait(client.fit(name, "test", promote=False), progress=False)
        there = ("--server", server.url)
        jobs = {
            "evaluation": client.evaluate(name, "test", ["identity"]),
            "batch": client.create_batch(name, dataset="test"),
        }
        for kind, job in jobs.items():
            client.wait(job, progress=False)
            result = cli("delete", name, f"--{kind}", job.id, *there, "--json")
            assert result.json["deleted"] == f"{kind} {job.id} of {name}"
        result = cli("delete", name, "--version", "1", *there)
        assert (result.status, "served as champion" in result.err) == (2, True)
        result = cli("delete", name, "--version", "2", *there)
        assert result.out.startswith(f"deleted version 2 of {name}; its content is erased after 2")
        result = cli("delete", name, "--dataset", "test", *there, "--json")
        assert result.json["deleted"] == f"data set test of {name}"
        result = cli("delete", name, "--alias", "champion", "--force", *there)
        assert (result.status, result.err) == (0, "")
        result = cli("delete", name, "--alias", "champion", "--version", "1", *there)
        assert (result.status, "found --version and --alias" in result.err) == (2, True)
        assert cli("delete", "--run", "none", *there).status == 2
        assert cli("delete", *there).err.startswith("error: model: found none")
        assert cli("delete", name, *there).status == 0
        with pytest.raises(MissingError):
            client.get_model(name)


def test_command_describes(cli: Cli, server: Server, name: str) -> None:
    there = ("--server", server.url)
    with Client(server.url) as client:
        client.create_model(name, 4)
        client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
        client.wait(client.fit(name, "test", promote=False), progress=False)
        result = cli("describe", name, "--description", "of May", "--tags", f"a, {name}-b", *there)
        assert result.out == f"{name}: of May\ntags: a, {name}-b\npredictions: may_change\n"
        assert [model.name for model in client.list_models(tag=f"{name}-b")] == [name]
        assert cli("describe", name, "--dataset", "test", *there).out == (
            "test: no description\ntags: none\n"
        )
        result = cli("describe", name, "--version", "1", "--tags", "a", *there, "--json")
        assert result.json["tags"] == ["a"]
        result = cli("describe", name, "--dataset", "test", "--name", "x", *there)
        assert (result.status, "an option for a model only" in result.err) == (2, True)
        result = cli("describe", name, "--predictions", "keep", *there)
        assert result.out.endswith(f"tags: a, {name}-b\npredictions: keep\n")
        assert cli("describe", name, "--tags", "", "--name", f"{name}-2", *there).status == 0
        assert client.get_model(f"{name}-2").tags == ()


def test_command_searches_models(cli: Cli, server: Server, name: str) -> None:
    there = ("--server", server.url)
    with Client(server.url) as client:
        client.create_model(name, 4)
        client.update_model(name, tags=["a", f"{name}-b"], description="photos [red] of May")
    result = cli("models", "--tag", f"{name}-b", "--state", "unverified", *there)
    assert result.out == f"{name}: 4 classes; a, {name}-b; photos [red] of May\n"
    result = cli("models", "--name", name.upper(), *there, "--json")
    assert [item["name"] for item in result.json] == [name]
    assert cli("models", "--name", name, "--state", "stale", *there).out == "no models\n"
    assert cli("models", "--state", "rotten", *there).status == 2


def test_command_changes_retention(cli: Cli, server: Server, name: str) -> None:
    there = ("--server", server.url)
    with Client(server.url) as client:
        client.create_model(name, 4)
    result = cli("retention", name, "--dataset-days", "90", "--label-days", "30", *there)
    assert result.out == (
        "datasets: deleted after 90 days\nversions: kept for ever\nlabels: deleted after 30 days\n"
    )
    result = cli("retention", name, "--version-days", "0.5", "--label-days", "0", *there, "--json")
    expected = {"dataset_seconds": 7_776_000.0, "version_seconds": 43_200.0, "label_seconds": None}
    assert result.json == expected
    assert cli("retention", name, *there, "--json").json == expected
    result = cli("retention", name, "--dataset-days", "nan", *there)
    assert (result.status, "--dataset-days: found nan" in result.err) == (2, True)
    result = cli("retention", name, "--dataset-days", "0.0001", *there)
    assert (result.status, "dataset_seconds" in result.err) == (2, True)


def test_client_updates(client: Either, name: str) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
    model = client.update_model(name, tags=("a",), retention={"version_seconds": 3600.0})
    assert (model.tags, model.retention["version_seconds"]) == (("a",), 3600.0)
    with pytest.raises(InputError, match=r"retention\.version_seconds: found nan"):
        client.update_model(name, retention={"version_seconds": float("nan")})
    assert model.predictions == "may_change"
    assert client.update_model(name, predictions="keep").predictions == "keep"
    with pytest.raises(ContradictionError):
        client.create_model(name, 4, predictions="may_change", exist_ok=True)
    assert client.create_model(name, 4, predictions="keep", exist_ok=True).name == name
    assert client.update_dataset(name, "test", description="of May").description == "of May"
    assert [item.name for item in client.list_models(name=name, state="unverified")] == [name]
    assert client.update_model(name, rename=f"{name}-2").name == f"{name}-2"


def test_client_deletes(client: Either, name: str) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
    client.wait(client.fit(name, "test", promote=True), progress=False)
    with pytest.raises(ContradictionError, match="champion"):
        client.delete_model(name)
    deletion = client.delete_alias(name, "champion", force=True)
    assert deletion.deleted_at == deletion.erased_after
    assert client.alias_history(name)[0].to_version is None
    assert client.rollback(name).version == 1
    deletion = client.delete_model(name, force=True)
    assert deletion.deleted_at < deletion.erased_after
    with pytest.raises(MissingError):
        client.delete_model(name)


def test_examples_of_the_document_run(server: Server) -> None:
    examples = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    with Client(server.url) as client:
        with suppress(MissingError):  # of another test of the same server
            client.delete_model("resnet", force=True)
        client.create_model("resnet", 4)
        client.upload_dataset("resnet", "old", LOGITS, LABELS, progress=False)
        for _ in range(3):
            client.wait(client.fit("resnet", "old", promote=False), progress=False)
        client.promote("resnet", 1, alias="canary")
        exec("".join(examples), {"client": client})  # noqa: S102
        with pytest.raises(MissingError):
            client.get_model("resnet")
