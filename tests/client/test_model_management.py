"""Changes and deletions by the client."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from recalib.client import Client, ResourceConflictError, ResourceNotFoundError
from recalib.errors import InputError
from tests.cli.running import LABELS, LOGITS
from tests.client.either import Either
from tests.end_to_end.programs import Server

pytestmark = pytest.mark.slow

_PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_client_updates(client: Either, name: str) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
    model = client.update_model(name, tags=("a",), retention={"version_seconds": 3600.0})
    assert (model.tags, model.retention["version_seconds"]) == (("a",), 3600.0)
    with pytest.raises(InputError, match=r"retention\.version_seconds: found nan"):
        client.update_model(name, retention={"version_seconds": float("nan")})
    assert model.predictions == "may_change"
    assert client.update_model(name, predictions="keep").predictions == "keep"
    with pytest.raises(ResourceConflictError):
        client.create_model(name, 4, predictions="may_change", exist_ok=True)
    assert client.create_model(name, 4, predictions="keep", exist_ok=True).name == name
    assert client.update_dataset(name, "test", description="of May").description == "of May"
    assert [item.name for item in client.list_models(name=name, state="unverified")] == [name]
    assert client.update_model(name, rename=f"{name}-2").name == f"{name}-2"


def test_client_deletes(client: Either, name: str) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "test", LOGITS, LABELS, progress=False)
    client.wait(client.fit(name, "test", promote=True), progress=False)
    with pytest.raises(ResourceConflictError, match="champion"):
        client.delete_model(name)
    deletion = client.delete_alias(name, "champion", force=True)
    assert deletion.deleted_at == deletion.erased_after
    assert client.alias_history(name)[0].to_version is None
    assert client.rollback(name).version == 1
    deletion = client.delete_model(name, force=True)
    assert deletion.deleted_at < deletion.erased_after
    with pytest.raises(ResourceNotFoundError):
        client.delete_model(name)


def test_examples_of_the_document_run(server: Server) -> None:
    examples = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    with Client(server.url) as client:
        with suppress(ResourceNotFoundError):  # of another test of the same server
            client.delete_model("resnet", force=True)
        client.create_model("resnet", 4)
        client.upload_dataset("resnet", "old", LOGITS, LABELS, progress=False)
        for _ in range(3):
            client.wait(client.fit("resnet", "old", promote=False), progress=False)
        client.promote("resnet", 1, alias="canary")
        exec("".join(examples), {"client": client})  # noqa: S102
        with pytest.raises(ResourceNotFoundError):
            client.get_model("resnet")
