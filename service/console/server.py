"""The server itself: what `recalib doctor` checks, and the effective settings."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import Response

from recalib.core.field_comments import field_comments
from recalib.settings import Settings
from recalib.settings.effective import effective_settings
from service.console.keys import check_administrator
from service.console.rendering import page
from service.console.routing import router
from service.console.visits import SignedIn
from service.doctor import CheckResult, check_registry, check_settings


@router.get("/server")
async def server(visit: SignedIn) -> Response:
    check_administrator(visit)
    settings, registry = visit.state.settings, visit.state.registry

    def check() -> list[CheckResult]:
        return [*check_settings(settings), *check_registry(registry, settings)]

    described = _described(settings)
    return page(
        visit, "server", checks=await to_thread.run_sync(check),
        changed=[setting for setting in described if setting["value"] != setting["default"]],
        defaults=[setting for setting in described if setting["value"] == setting["default"]],
    )  # fmt: skip


def _described(settings: Settings) -> list[dict[str, Any]]:
    """Return the effective settings, each with its description."""
    comments = field_comments(Settings)
    return [
        setting | {"description": comments[setting["name"]]}
        for setting in effective_settings(settings, frozenset())
    ]
