"""Two server processes on PostgreSQL: one deletes what the other begins to use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.end_to_end.programs import Programs, Server
from tests.fitting.conftest import draw

_ROUNDS = 8


@pytest.mark.slow
@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_version_is_either_deleted_or_used(programs: Programs, empty_database_url: str) -> None:
    """In each round, one request succeeds and the other is refused, whichever is first."""
    settings = {"database_url": empty_database_url}
    with (
        programs.serve(**settings) as server,
        programs.serve("--job-workers", 0, **settings) as other,
        ThreadPoolExecutor(3) as threads,
    ):
        server.model()
        server.upload(*draw(300, 4, 3.0))
        jobs = [server.ask_fit(map="identity", promote=False) for _ in range(_ROUNDS)]
        for job in jobs:
            assert server.finished(job)["state"] == "succeeded"
        for version in range(1, _ROUNDS + 1):
            path = f"/v1/models/digits/calibrators/{version}"
            alias = "/v1/models/digits/aliases/canary"
            deletion = threads.submit(server.client.request, "DELETE", path)
            promotion = threads.submit(
                other.client.request, "PUT", alias, json={"version": version}
            )
            batch = {"dataset": "validation", "version": version}
            use = threads.submit(
                other.client.request, "POST", "/v1/models/digits/batches", json=batch
            )
            statuses = [item.result().status_code for item in (deletion, promotion, use)]
            if statuses[0] == 200:
                assert statuses[1:] == [404, 404]
                assert {_status(program, path) for program in (server, other)} == {404}
            else:
                assert statuses[0] == 409
                assert 200 in statuses[1:] or 202 in statuses[1:]
                assert {_status(program, path) for program in (server, other)} == {200}
            aliases: Any = other.ask("GET", "/v1/models/digits/aliases")
            for item in aliases["items"]:
                served = f"/v1/models/digits/calibrators/{item['version']}"
                assert _status(other, served) == 200
        for item in server.ask("GET", "/v1/models/digits/batches")["items"]:
            assert server.finished(item["id"])["state"] == "succeeded"


def _status(server: Server, path: str) -> int:
    status: int = server.client.get(path).status_code
    return status
