"""Whether what is served is still calibrated."""

from __future__ import annotations

from typing import Any

from recalib.client.asking import fetch, path
from recalib.client.plans import Plan, Session
from recalib.client.results import Job, Model, Monitoring

__all__ = ["get_monitoring", "refit", "set_monitoring"]


def get_monitoring(session: Session, model: str) -> Plan[Monitoring]:
    """Return how a model's champion holds up: state, evidence, windows and what has happened.

    Raises
    ------
    MissingError: no such model.
    """
    return fetch(session, Monitoring, "GET", path("models", model, "monitoring"))


def refit(session: Session, model: str) -> Plan[Job]:
    """Ask for a candidate, fitted on kept logits; return the job, or the one that is under way.

    It becomes the champion only on evidence: see `get_monitoring`.

    Raises
    ------
    MissingError: no such model.
    ContradictionError: it has no champion.
    """
    return fetch(session, Job, "POST", path("models", model, "monitoring", "refit"))


def set_monitoring(session: Session, /, model: str, **settings: Any) -> Plan[Model]:
    """Say what of a model is watched, and how, from now on.

    Parameters
    ----------
    settings: as the server describes them (`objective`, `tolerance`, `alpha`, `segments`, ...);
        what is left out has its default.

    Raises
    ------
    MissingError: no such model.
    RefusedError: a setting that cannot be.
    ContradictionError: segments that would change their numbers.
    """
    return fetch(
        session, Model, "PUT", path("models", model, "monitoring", "settings"), json=settings
    )
