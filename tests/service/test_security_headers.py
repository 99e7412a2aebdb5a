"""Every response tells browsers to guess no type and to run nothing of it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service

_NOTHING = "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.sqlite_only
def test_every_response_has_the_headers(ready: Service) -> None:
    """Fast routes, problems and pages too; a policy of a page is its only one."""
    ask = ready.client.get
    ready.fitted()
    answers: list[Any] = [
        ask(path) for path in ("/v1/models", "/v1/models/none", "/metrics", "/docs/favicon.png")
    ]
    answers += [ready.calibrate(np.zeros((1, 4))), ask("/livez", headers={"Host": "evil.example"})]
    assert [answer.status_code for answer in answers] == [200, 404, 200, 200, 200, 421]
    for answer in answers:
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers.get_list("content-security-policy") == [_NOTHING]


@pytest.mark.sqlite_only
@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_pages_run_scripts_of_this_server_only(shared: Service, path: str) -> None:
    answer = shared.client.get(path)
    (policy,) = answer.headers.get_list("content-security-policy")
    (sources,) = re.findall(r"script-src ([^;]*);", policy)
    inline = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
    assert sources.split() == ["'self'", *(f"'sha256-{digest}'" for digest in digests)]
    assert "unsafe" not in sources
