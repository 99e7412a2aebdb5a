"""docker-compose.yml as `docker compose` resolves it: merged, with defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ROOT", "SERVICES", "STACK", "mounts", "once", "settings_in"]

ROOT = Path(__file__).resolve().parents[2]


def _filled(text: str) -> str:
    """Replace variables by their defaults, which all must have, and $$ by $."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: match[2], text).replace("$$", "$")


_TEXT = (ROOT / "docker-compose.yml").read_text()
STACK: dict[str, Any] = yaml.safe_load(_filled(_TEXT))
SERVICES: dict[str, dict[str, Any]] = STACK["services"]


def once(service: str) -> bool:
    """Return whether a service runs once and ends."""
    return bool(SERVICES[service]["restart"] == "no")


def mounts(service: str) -> list[tuple[str, str, bool]]:
    """Return source, target and read-only flag of every volume of a service."""
    volumes = []
    for volume in SERVICES[service].get("volumes", []):
        source, target, *flags = volume.split(":")
        volumes.append((source, target, flags == ["ro"]))
    return volumes


def settings_in(environment: dict[str, Any]) -> set[str]:
    """Return the names of Recalib settings in an environment."""
    return {
        re.sub(r"_FILE$", "", name).removeprefix("RECALIB_").lower()
        for name in environment
        if name.startswith("RECALIB_")
    }
